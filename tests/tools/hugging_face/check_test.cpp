// ferry check: says nothing of a whole folder, and of a broken one what is wrong, in one line that
// names the tensor or file and what to do.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/hugging_face/broken_folder.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::BrokenFolder;
using ferry::test::fixture;
using ferry::test::Outcome;
using ferry::test::Shard;
using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;
using testing::SizeIs;

struct Checked : BrokenFolder {
  void SetUp() override {
    BrokenFolder::SetUp();
    write(model + "/tokenizer.json",
          R"({"added_tokens": [], "model": {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1}}})");
    write(model + "/generation_config.json", R"({"eos_token_id": 1})");
  }

  json findings(const std::string& options = "") const {
    const Outcome outcome = ferry("check " + model + " --json " + options);
    EXPECT_THAT(outcome.code, AnyOf(0, 4)) << outcome.err;
    if (outcome.out.empty()) return json::array();
    const json report = json::parse(outcome.out);
    EXPECT_EQ(outcome.code, report["problem_count"] > 0 ? 4 : 0);
    for (const json& finding : report["findings"]) {
      EXPECT_NE(finding["advice"], "") << finding;
      EXPECT_THAT(finding["message"].get<std::string>(), testing::Not(HasSubstr("\n")));
    }
    return report["findings"];
  }

  void expect_healthy(const std::string& options = "") const {
    EXPECT_EQ(findings(options), json::array()) << options;
  }

  // One of the findings is of this kind and severity, and names `what`.
  void expect_found(const std::string& kind, const std::string& what, bool is_problem,
                    const std::string& options) const {
    const json found = findings(options);
    const bool any = std::any_of(found.begin(), found.end(), [&](const json& finding) {
      const std::string text =
          finding["subject"].get<std::string>() + " " + finding["message"].get<std::string>();
      return finding["kind"] == kind && text.find(what) != std::string::npos &&
             finding["severity"] == (is_problem ? "problem" : "warning");
    });
    EXPECT_TRUE(any) << kind << ": " << what << " is not in " << found.dump(2);
  }
};

struct Way {
  std::string kind, what;
  std::function<void()> change;
  std::string options = "";
  bool is_problem = true;
};

struct Ways : Checked {
  void try_all(const std::vector<Way>& ways) {
    for (const Way& way : ways) {
      SCOPED_TRACE(way.kind + " " + way.what);
      with_broken_copy(way.change,
                       [&] { expect_found(way.kind, way.what, way.is_problem, way.options); });
    }
  }
  void remove(const std::string& file) const { ASSERT_TRUE(fs::remove(model + "/" + file)); }
  void erase_config(const std::string& member) const {
    edit(model + "/config.json", [&](json& config) { config.erase(member); });
  }

  std::vector<Way> ways_of_files() {
    return {{"files", "is missing: the index has", [&] { lose_a_shard(); }},
            {"files", "model-00001-of",
             [&] {
               fs::remove(shard_of("model.norm.weight"));
               fs::remove(shard_of("model.embed_tokens.weight"));
             }},
            {"files", "bytes", [&] { cut_a_shard(); }},
            {"files", "no weights",
             [&] {
               for (const auto& each : fs::directory_iterator(model)) {
                 if (each.path().extension() == ".safetensors") fs::remove(each.path());
               }
               fs::remove(index_path());
             }},
            {"index", "names 1 tensor that none of the shards holds: model.ghost.weight",
             [&] { name_a_ghost_in_the_index(); }},
            {"index", "lacks 1 tensor", [&] { lose_a_name_of_the_index(); }},
            {"index", "places 1 tensor in the wrong shards",
             [&] {
               edit_index([](json& map) {
                 for (const json& file : map) {
                   if (file == map[kNorm]) continue;
                   map[kNorm] = json(file);
                   break;
                 }
               });
             }},
            {"index", "not JSON", [&] { write(index_path(), R"({"weight_map": )"); }},
            {"index", "does not find the weights", [&] { fs::remove(index_path()); }},
            {"index", "does not find the weights", [&] { fs::remove(index_path()); }, "--for vllm",
             false},
            {"files", "vLLM reads consolidated",
             [&] { fs::copy(shard_of(kNorm), model + "/consolidated.safetensors"); }, "", false},
            {"config", "no config.json", [&] { remove("config.json"); }},
            {"config", "config.json", [&] { write(model + "/config.json", "{"); }},
            {"config", "modeling_own.py",
             [&] {
               edit_config("auto_map", {{"AutoModel", "modeling_own.Own"}});
               edit_config("model_type", "own");
             }},
            {"config", "modeling_own.py",
             [&] {
               edit_config("auto_map", {{"AutoModel", "modeling_own.Own"}});
             },
             "", false},
            {"tokenizer", "no tokenizer files", [&] { remove("tokenizer.json"); }, "", false},
            {"tokenizer", "no tokenizer files", [&] { remove("tokenizer.json"); }, "--for sglang"},
            {"tokenizer", "tokenizer.json is not valid JSON",
             [&] { write(model + "/tokenizer.json", "{"); }},
            {"tokenizer", "ids up to 100000",
             [&] {
               edit(model + "/tokenizer.json",
                    [](json& file) { file["model"]["vocab"]["b"] = 100000; });
             }},
            {"generation", "eos_token_id 99999 is outside",
             [&] { write(model + "/generation_config.json", R"({"eos_token_id": [1, 99999]})"); },
             "", false}};
  }

  std::vector<Way> ways_of_tensors(bool of_known_family) {
    return {
        {"missing", kNorm, [&] { lose(kNorm); }},
        {"missing", "experts", [&] { lose(kExpert); }},
        {"missing", of_known_family ? "lm_head.weight" : "the output layer",
         [&] { lose_the_output_layer(); }},
        {"missing", of_known_family ? "model.embed_tokens.weight" : "the embedding",
         [&] { lose("model.embed_tokens.weight"); }},
        {"missing", "input_layernorm", [&] { misspell_a_norm(); }},
        {"missing", "layers", [&] { edit_config("num_hidden_layers", 40); }},
        {"shape", "model.embed_tokens.weight", [&] { edit_config("hidden_size", 72); }},
        {"shape", "model.embed_tokens.weight", [&] { edit_config("vocab_size", 7000); }},
        {"missing", "experts", [&] { edit_config("num_local_experts", 9); }},
        {"shape", kNorm, [&] { change_a_shape(); }},
        {"dtype", std::string(kNorm) + ": is float16", [&] { change_a_dtype(); }, "", false},
        {"quantisation", kExpert, [&] { lose(kExpertScales); }},
        {"quantisation", kExpert, [&] { rename_scales(); }},
        {"quantisation", "are not quantised, and config.json does not except",
         [&] {
           lose(kExpertScales);
           edit_shard(kExpert, [](Shard& shard) {
             json& tensor = shard.header[kExpert];
             tensor["dtype"] = "BF16";
             tensor["shape"][1] = tensor["shape"][1].get<int64_t>() / 2;
           });
         }},
        {"quantisation", "no quantization_config", [&] { erase_config("quantization_config"); }},
        {"quantisation", "excepts 1 module",
         [&] {
           edit(model + "/config.json", [](json& config) {
             config["quantization_config"]["modules_to_not_convert"].push_back(
                 "model.layers.1.self_attn.q_proj");
           });
         }},
        {"names", "are wrapped ('module.')",
         [&] {
           const json map = json::parse(read(index_path()))["weight_map"];
           for (const auto& [name, file] : map.items()) rename(name, "module." + name);
         }},
        {"config", "model_type", [&] { erase_config("model_type"); }},
        {"config", "architectures", [&] { erase_config("architectures"); }, "--for vllm"},
        {"config", "architectures", [&] { erase_config("architectures"); }, "", false},
        {"tie", "lm_head.weight", [&] { edit_config("tie_word_embeddings", true); }, "", false},
        {"parts", "vision_config",
         [&] {
           edit_config("vision_config", {{"hidden_size", 8}});
         }},
        {"mtp", "num_nextn_predict_layers", [&] { edit_config("num_nextn_predict_layers", 1); }, "",
         false}};
  }
};

TEST_F(Checked, NothingIsSaidOfAWholeFolder) {
  for (const char* options : {"", "--for transformers", "--for vllm", "--for sglang"}) {
    expect_healthy(options);
  }
  expect_healthy("--like " + model);
  const Outcome text = ferry("check " + model);
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("model (mixtral): no problems\nchecked "));
}

TEST_F(Ways, AreFoundInFiles) { try_all(ways_of_files()); }

TEST_F(Ways, AreFoundInTensorsOfAKnownFamily) { try_all(ways_of_tensors(true)); }

TEST_F(Ways, AreFoundInTensorsOfAnUnknownType) {
  give_an_unknown_type();
  expect_healthy();
  try_all(ways_of_tensors(false));
}

// A line a problem, with what to do, in the words of the command line.
TEST_F(Ways, AreALineEach) {
  lose(kNorm);
  lose_the_output_layer();
  const Outcome outcome = ferry("check " + model);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.out, HasSubstr("model (mixtral): 2 problems\n  problem: "));
  EXPECT_THAT(outcome.out, HasSubstr(std::string("  problem: ") + kNorm + ": is missing; "));
  EXPECT_THAT(outcome.out, HasSubstr("(convert with --fill-from DIR)\n"));
  EXPECT_THAT(outcome.err, HasSubstr("ferry: error: "));
  EXPECT_THAT(outcome.err, HasSubstr("2 problems found"));
}

// What transformers reads and engines do not.
TEST_F(Checked, NamesOfARunningModelAreForTransformersAlone) {
  model = fixture("wild/qwen3_moe_fp8_fused");
  const auto of_names = [&](const std::string& options) {
    std::vector<json> found;
    for (const json& finding : findings(options)) {
      if (finding["kind"] == "names") found.push_back(finding);
    }
    return found;
  };
  EXPECT_THAT(of_names("--for transformers"), SizeIs(0));
  ASSERT_THAT(of_names(""), SizeIs(1));
  EXPECT_EQ(of_names("")[0]["severity"], "warning");
  ASSERT_THAT(of_names("--for vllm"), SizeIs(1));
  const json finding = of_names("--for sglang")[0];
  EXPECT_EQ(finding["severity"], "problem");
  EXPECT_THAT(finding["message"].get<std::string>(), HasSubstr("on the hub model.layers."));
}

TEST_F(Ways, AreFoundAgainstTheOriginal) {
  const std::string original = path("original"), like = " --like " + original;
  fs::copy(model, original, fs::copy_options::recursive);
  write(original + "/chat_template.jinja", "{{ messages }}");
  const std::string module = "model.layers.1.self_attn.q_proj.weight";
  try_all({{"missing", kNorm, [&] { lose(kNorm); }, like},
           {"left_over", "model.new_norm.weight", [&] { rename(kNorm, "model.new_norm.weight"); },
            like},
           {"config", "rms_norm_eps", [&] { edit_config("rms_norm_eps", 0.5); }, like, false},
           {"files", "chat_template.jinja", [] {}, like, false}});
  const Outcome missing = ferry("check " + model + " --like " + path("nowhere"));
  EXPECT_EQ(missing.code, 3);
}

// The norm of what the embedding has normalised.
TEST_F(Checked, WhatNoFirstLayerOfATypeHasIsNotMissed) {
  give_an_unknown_type();
  const json map = json::parse(read(index_path()))["weight_map"];
  for (const auto& [name, file] : map.items()) {
    const size_t norm = name.find("input_layernorm.");
    if (norm == std::string::npos) continue;
    if (name.starts_with("model.layers.0.")) {
      lose(name);
    } else {
      rename(name, name.substr(0, norm) + "attn_norm.weight");
    }
  }
  const std::string first = "model.layers.0.attn_norm.weight";
  expect_found("missing", first, false, "");
  edit_config("model_type", "modernbert-decoder");
  expect_healthy();
  lose("model.layers.2.attn_norm.weight");
  expect_found("missing", "model.layers.2.attn_norm.weight", true, "");
  lose("model.layers.0.post_attention_layernorm.weight");
  expect_found("missing", "model.layers.0.post_attention_layernorm.weight", false, "");
}

// Quantised or not, a model has the same parameters.
TEST_F(Checked, AQuantisedModelIsLikeTheOriginal) {
  const std::string plain = path("plain");
  ASSERT_EQ(ferry("convert " + model + " " + plain + " --to hf --dtype bf16").code, 0);
  for (const json& finding : findings("--like " + plain)) {
    EXPECT_EQ(finding["kind"], "") << finding;
  }
}

// What convert writes is checked once it is there.
TEST_F(Checked, ConvertSaysWhatIsWrongWithWhatItWrote) {
  const std::string command = "convert " + model + " " + path("out") + " --to hf --overwrite";
  EXPECT_THAT(ferry(command).out, testing::Not(HasSubstr("of the folder that was written")));
  edit(model + "/config.json", [](json& config) { config.erase("model_type"); });
  const Outcome outcome = ferry(command);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("note: of the folder that was written: config.json has no model_type"));
  EXPECT_THAT(ferry(command + " --dry-run").out,
              testing::Not(HasSubstr("of the folder that was written")));
}

TEST_F(Checked, OtherFoldersAreRefused) {
  const Outcome run = ferry("check " + fixture("megatron/llama_tp2dp2_dpr"));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("is not a Hugging Face folder"));
  EXPECT_THAT(run.err, HasSubstr("--to hf"));
  EXPECT_EQ(ferry("check " + path("nowhere")).code, 3);
  EXPECT_EQ(ferry("check " + model + "/config.json").code, 2);
  EXPECT_EQ(ferry("check " + folder.string()).code, 2);
  EXPECT_EQ(ferry("check " + model + " --for llama.cpp").code, 2);
}

}  // namespace
