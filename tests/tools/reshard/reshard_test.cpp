// ferry reshard as a user meets it: what goes along with the state, and what is refused.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kMegatron = std::string(FERRY_FIXTURES) + "/megatron/";
const std::string kHotLlama = kMegatron + "hot_llama";
const std::string kShardedLlama = kMegatron + "llama_tp2dp2_dpr";
const std::string kLegacyRun = kMegatron + "llama_legacy_tp2pp2";

class Reshard : public Program {
 protected:
  Outcome run(const std::string& arguments, int code = 0) const {
    const Outcome outcome = ferry(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.err;
    return outcome;
  }

  json result(const std::string& arguments) const {
    return json::parse(run(arguments + " --json").out);
  }

  // A Hugging Face model with a tokenizer, as a release of Megatron-LM's.
  std::string release() const {
    run("convert " + kHotLlama + " " + path("hf") + " --to hf");
    write(path("hf/tokenizer.json"), R"({"model": {"vocab": {"a": 0}}})");
    run("convert " + path("hf") + " " + path("made") + " --to torch_dist");
    return path("made");
  }

  std::string writable(const std::string& from, const std::string& name) const {
    fs::copy(from, path(name), fs::copy_options::recursive);
    return path(name);
  }

  // One of the checkpoint's arguments.
  std::string argument(const std::string& checkpoint, const std::string& name) const {
    const json args = result("inspect " + checkpoint)["args"];
    return args.contains(name) ? args[name].dump() : "";
  }
};

TEST_F(Reshard, NormsHaveTheNamesThatTheModulesLookFor) {
  run("convert " FERRY_FIXTURES "/core/qwen2_moe_mixed " + path("hf") + " --to hf");
  const json made = result("convert " + path("hf") + " " + path("run") +
                           " --to torch_dist --transformer-impl local");
  EXPECT_THAT(made["load_with"].get<std::vector<std::string>>(),
              testing::Contains("--transformer-impl local"));
  EXPECT_EQ(argument(path("run"), "transformer_impl"), "\"local\"");
  EXPECT_THAT(run("inspect --tensors " + path("run")).out, Not(HasSubstr("pre_mlp_layernorm")));
  run("reshard " + path("run") + " " + path("fused") + " --transformer-impl transformer_engine");
  EXPECT_THAT(run("inspect --tensors " + path("fused")).out, HasSubstr("0.pre_mlp_layernorm"));
  run("reshard " + path("run") + " " + path("other") + " --transformer-impl mine", 2);
}

TEST_F(Reshard, AReleaseStaysARelease) {
  const std::string source = release();
  for (const std::string to : {"torch_dist", "torch", "torch_dist --core-release 0.15"}) {
    fs::remove_all(path("out"));
    const json report = result("reshard " + source + " " + path("out") + " --tp 2 --to " + to);
    EXPECT_TRUE(report["iteration"].is_null()) << to;
    EXPECT_EQ(read(path("out/latest_checkpointed_iteration.txt")), "release") << to;
    EXPECT_TRUE(fs::exists(path("out/release"))) << to;
    EXPECT_FALSE(fs::exists(path("out/iter_0000000"))) << to;
  }
  run("reshard " + source + " " + path("dcp") + " --to dcp");
  run("reshard " + path("dcp") + " " + path("again"));
  EXPECT_EQ(read(path("again/latest_checkpointed_iteration.txt")), "release");
}

TEST_F(Reshard, AGptBecomesAHybridModelAndComesBack) {
  const std::string kMixture = kMegatron + "qwen3moe_te_ep2pp2_dpr";
  for (const auto& [source, pattern] :
       {std::pair{kShardedLlama, "*-*-*-*-"}, std::pair{kMixture, "*E*E|*E*E"}}) {
    for (const char* name : {"same", "hybrid", "back", "ranks", "of_ranks"}) {
      fs::remove_all(path(name));
    }
    run("reshard " + source + " " + path("same"));
    const json made = result("reshard " + source + " " + path("hybrid") + " --model hybrid");
    EXPECT_EQ(made["parameters"],
              result("reshard " + source + " " + path("x") + " --dry-run")["parameters"]);
    EXPECT_EQ(argument(path("hybrid"), "hybrid_layer_pattern"), json(pattern).dump());
    EXPECT_EQ(argument(path("hybrid"), "num_layers"), "8");
    const std::string names = run("inspect --tensors " + path("hybrid")).out;
    EXPECT_THAT(names, HasSubstr("decoder.final_norm.weight"));
    EXPECT_THAT(names, HasSubstr("decoder.layers.6.self_attention.linear_qkv.weight"));
    EXPECT_THAT(names, HasSubstr("optimizer.state.exp_avg.decoder.layers.7.mlp."));
    EXPECT_THAT(names, Not(HasSubstr("decoder.layers.mlp.")));
    const std::string family = source == kMixture ? "qwen3_moe" : "llama";
    EXPECT_THAT(run("inspect " + path("hybrid")).out, HasSubstr("it is " + family + " with"));
    EXPECT_THAT(run("convert " + path("hybrid") + " " + path("hf") + " --to hf", 6).err,
                HasSubstr("reshard it with --model gpt"));
    run("reshard " + path("hybrid") + " " + path("back") + " --model gpt");
    run("diff " + path("same") + " " + path("back"));
    for (const char* argument_name : {"num_layers", "hybrid_layer_pattern", "moe_layer_freq"}) {
      EXPECT_EQ(argument(path("back"), argument_name), argument(source, argument_name));
    }
    run("reshard " + source + " " + path("ranks") + " --model hybrid --to torch --tp 1 --pp 1");
    run("reshard " + path("ranks") + " " + path("of_ranks") + " --model gpt --to torch_dist");
    run("diff " + path("same") + " " + path("of_ranks"));
  }
}

TEST_F(Reshard, LayersOfOtherModelsStay) {
  const auto refused = [&](const std::string& source, const std::string& to,
                           const std::string& reason) {
    const Outcome outcome = run("reshard " + source + " " + path("out") + " --model " + to, 5);
    EXPECT_THAT(outcome.err, HasSubstr(reason));
    EXPECT_FALSE(fs::exists(path("out"))) << source;
  };
  refused(kMegatron + "hot_deepseek", "hybrid", "latent attention");
  run("reshard " + kHotLlama + " " + path("hybrid") + " --model hybrid --pp 2 " +
      "--decoder-first-pipeline-num-layers 3");
  refused(path("hybrid"), "gpt", "between attention and its MLP");
}

TEST_F(Reshard, TheTokenizerGoesAlong) {
  const std::string source = release();
  fs::create_directories(path("made/release/tokenizer/more/templates"));
  write(path("made/release/tokenizer/more/templates/chat.jinja"), "{{ text }}");
  std::string from = source;
  for (const std::string to : {"torch_dist", "torch", "fsdp_dtensor", "dcp"}) {
    run("reshard " + from + " " + path(to) + " --tp 2 --to " + to);
    const std::string where = path(to) + (to == "dcp" ? "" : "/release");
    EXPECT_EQ(read(where + "/tokenizer/tokenizer.json"), read(path("hf/tokenizer.json"))) << to;
    EXPECT_EQ(read(where + "/tokenizer/more/templates/chat.jinja"), "{{ text }}") << to;
    EXPECT_EQ(argument(path(to), "tokenizer_model"), json(where + "/tokenizer").dump()) << to;
    EXPECT_THAT(run("verify " + path(to)).out, HasSubstr("no damage found")) << to;
    write(where + "/tokenizer/tokenizer.json", "damaged");
    run("verify " + path(to), 4);
    write(where + "/tokenizer/tokenizer.json", read(path("hf/tokenizer.json")));
    from = path(to);
  }
  run("reshard " + from + " " + path("back") + " --to hf");
  EXPECT_EQ(read(path("back/tokenizer.json")), read(path("hf/tokenizer.json")));
}

TEST_F(Reshard, ATokenizerElsewhereKeepsItsPath) {
  const std::string source = writable(kHotLlama, "source");
  const std::string before = argument(source, "tokenizer_model");
  fs::create_directory(source + "/iter_0000005/tokenizer");
  write(source + "/iter_0000005/tokenizer/tokenizer.model", "x");
  run("reshard " + source + " " + path("out"));
  EXPECT_EQ(read(path("out/iter_0000005/tokenizer/tokenizer.model")), "x");
  EXPECT_EQ(argument(path("out"), "tokenizer_model"), before);
}

TEST_F(Reshard, OptimizerStateIsDroppedOnRequestOnly) {
  const std::string source = writable(kLegacyRun, "source");
  fs::remove(source + "/iter_0000005/mp_rank_01_001/distrib_optim.pt");
  for (const std::string how : {"", "--optimizer fully_reshardable", "--to torch"}) {
    const Outcome outcome = run("reshard " + source + " " + path("out") + " " + how, 5);
    EXPECT_THAT(outcome.err, HasSubstr("mp_rank_01_001")) << how;
    EXPECT_THAT(outcome.err, HasSubstr("--optimizer none")) << how;
    EXPECT_FALSE(fs::exists(path("out"))) << how;
  }
  run("reshard " + source + " " + path("out") + " --optimizer none");
  const Outcome asked =
      run("reshard " + path("out") + " " + path("more") + " --optimizer fully_reshardable", 2);
  EXPECT_THAT(asked.err, HasSubstr("holds no optimizer state"));
  run("reshard " + path("out") + " " + path("more"));
}

TEST_F(Reshard, TheFolderItIsWrittenToMayHaveAnyName) {
  run("reshard " + kShardedLlama + " " + path("a"));
  run("reshard " + kShardedLlama + " '" + path("n\xff") + "'");
  EXPECT_EQ(read(path("a/iter_0000005/.metadata")), read(path("n\xff/iter_0000005/.metadata")));
  run("verify '" + path("n\xff") + "'");
  // The arguments would have to name the tokenizer's folder.
  const Outcome outcome = run("reshard " + release() + " '" + path("m\xff") + "'", 2);
  EXPECT_THAT(outcome.err, HasSubstr("not UTF-8"));
  EXPECT_FALSE(fs::exists(path("m\xff")));
}

TEST_F(Reshard, NamesOfTensorsAreUtf8) {
  for (const std::string to : {"torch_dist", "dcp"}) {
    const Outcome outcome = run("reshard " + kShardedLlama + " " + path("out") + " --to " + to +
                                    " --rename 'output_layer.weight=a\xff"
                                    "b'",
                                2);
    EXPECT_THAT(outcome.err, HasSubstr("not UTF-8"));
  }
  EXPECT_FALSE(fs::exists(path("out")));
}

TEST_F(Reshard, WritesIntoRunFoldersOnly) {
  run("convert " + kHotLlama + " " + path("hf") + " --to hf");
  const std::string source = writable(kShardedLlama, "source");
  for (const auto& [target, why] :
       {std::pair{"source/iter_0000005", "is an iteration itself"},
        std::pair{"source/iter_0000005/inside", "is inside the source"},
        std::pair{"iter_0000007", "is an iteration itself"},
        std::pair{"hf", "holds a Hugging Face model"}, std::pair{"hf/config.json", "is a file"}}) {
    EXPECT_THAT(run("reshard " + source + " " + path(target), 2).err, HasSubstr(why)) << target;
  }
  EXPECT_THAT(run("reshard " + source + " " + source + "/iter_0000005/inside --to dcp", 2).err,
              HasSubstr("is inside the source"));
  for (const std::string target : {"source/iter_0000005", "hf"}) {
    run("convert " + path("hf") + " " + path(target) + " --to torch_dist", 2);
  }
  EXPECT_FALSE(fs::exists(path("hf/release")));
  EXPECT_FALSE(fs::exists(path("hf/latest_checkpointed_iteration.txt")));
}

TEST_F(Reshard, TheCommandThatLoadsAModelLoadsIt) {
  run("convert " + kHotLlama + " " + path("hf") + " --to hf");
  const std::string letters = "'Et*2|t*2L'";
  const std::string made =
      run("convert " + path("hf") + " '" + path("a run") +
          "' --to torch_dist --pp 2 --pipeline-model-parallel-layout " + letters)
          .out;
  EXPECT_THAT(made, HasSubstr("\nload with --load '" + path("a run") + "' "));
  EXPECT_THAT(made, HasSubstr("--pipeline-model-parallel-layout " + letters));
  // The tracker of a run that has iterations stays as it is.
  const std::string source = writable(kShardedLlama, "source");
  const std::string into = "convert " + path("hf") + " " + source + " --to torch_dist";
  for (const std::string how : {" --dry-run", ""}) {
    EXPECT_THAT(run(into + how).out,
                HasSubstr("\nput the word release in place of 5 into " + source +
                          "/latest_checkpointed_iteration.txt, then load with --load"));
  }
}

TEST_F(Reshard, PipelinesAreThoseThatMegatronTakes) {
  const std::string to = "reshard " + kShardedLlama + " " + path("out") + " --pp 2 ";
  for (const auto& [how, why] :
       {std::pair{"--pipeline-model-parallel-layout 'L|Etttt'", "L comes first"},
        std::pair{"--pipeline-model-parallel-layout garbage", "'g' is not allowed there"},
        std::pair{"--pipeline-model-parallel-layout 'Ett|ttL' --vpp 3", "--vpp 3 contradicts"},
        std::pair{"--decoder-first-pipeline-num-layers 4", "for --pp, 1 fits"}}) {
    EXPECT_THAT(run(to + how, 2).err, HasSubstr(why)) << how;
  }
  EXPECT_FALSE(fs::exists(path("out")));
}

TEST_F(Reshard, SaysThatFolderAndStateDisagree) {
  const std::string source = writable(kHotLlama, "source");
  fs::rename(source + "/iter_0000005", source + "/iter_0000009");
  write(source + "/latest_checkpointed_iteration.txt", "9");
  const json report = result("reshard " + source + " " + path("out"));
  EXPECT_EQ(report["iteration"].get<int>(), 5);
  EXPECT_THAT(report["warnings"].dump(), HasSubstr("named for iteration 9, its state says 5"));
}

TEST_F(Reshard, SaysWhatAFormatCannotHold) {
  const auto warnings = [&](const std::string& to) {
    fs::remove_all(path("out"));
    return result("reshard " + kShardedLlama + " " + path("out") + " --to " + to)["warnings"]
        .dump();
  };
  EXPECT_THAT(warnings("dcp"), HasSubstr("2 random number states, the state of rerun checks"));
  EXPECT_THAT(warnings("dcp"), Not(HasSubstr("extra states")));  // which say nothing
  EXPECT_THAT(warnings("torch"), HasSubstr("no place for it: the state of rerun checks;"));
  EXPECT_THAT(warnings("torch"), Not(HasSubstr("random")));
  EXPECT_EQ(warnings("torch_dist"), "[]");
  EXPECT_THAT(warnings("torch_dist --dtype fp16"), HasSubstr("up to 65504"));
}

TEST_F(Reshard, CountsEachParameterOnce) {
  EXPECT_EQ(
      result("reshard " + kHotLlama + " " + path("out") + " --to torch")["parameters"].get<int>(),
      62752);
}

}  // namespace
