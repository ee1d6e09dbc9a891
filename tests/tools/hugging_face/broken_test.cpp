// A healthy Hugging Face folder, and ways of breaking it: inspect, verify and convert each say what
// is wrong, of a model of a known family and of one of a type that is not known.
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/tools/hugging_face/broken_folder.h"

namespace {

using ferry::test::BrokenFolder;
using ferry::test::fixture;
using ferry::test::Outcome;
using ferry::test::Program;
using ferry::test::Shard;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// inspect wraps its lines.
std::string on_one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line, word;
  while (words >> word) line += (line.empty() ? "" : " ") + word;
  return line;
}

struct Broken : BrokenFolder {
  // All commands say `what`; verify and convert end with an error unless it is a `note`.
  void expect_said(const std::string& what, bool note = false) const {
    const Outcome inspect = ferry("inspect " + model), verify = ferry("verify " + model);
    EXPECT_THAT(on_one_line(inspect.out + inspect.err), HasSubstr(what));
    EXPECT_EQ(verify.code, note ? 0 : 4);
    EXPECT_THAT(verify.out + verify.err, HasSubstr(what));
    for (const std::string options : {"--to hf", "--to hf --dtype bf16"}) {
      const Outcome convert =
          ferry("convert " + model + " " + path("out") + " --overwrite " + options);
      EXPECT_EQ(convert.code == 0, note) << options << convert.out << convert.err;
      EXPECT_THAT(convert.out + convert.err, HasSubstr(what)) << options;
    }
  }
  void expect_healthy() const {
    EXPECT_EQ(ferry("verify " + model).code, 0) << ferry("verify " + model).out;
    EXPECT_EQ(ferry("convert " + model + " " + path("out") + " --overwrite --to hf").code, 0);
  }

  // Breaks the folder in every way, each time a new copy.
  void break_in_every_way(bool of_known_family) {
    expect_healthy();
    const auto way = [&](const std::string& what, const std::function<void()>& change,
                         bool note = false) {
      SCOPED_TRACE(what);
      with_broken_copy(change, [&] { expect_said(what, note); });
    };
    way("missing", [&] { lose_a_shard(); });
    way("bytes", [&] { cut_a_shard(); });
    way(kNorm, [&] { lose(kNorm); });
    way("experts", [&] { lose(kExpert); });
    way(of_known_family ? "lm_head" : "output layer", [&] { lose_the_output_layer(); });
    way("input_layernorm", [&] { misspell_a_norm(); });
    way("names 1 tensor that none of the shards holds: model.ghost.weight",
        [&] { name_a_ghost_in_the_index(); });
    way("lacks 1 tensor that the shards hold: " + std::string(kNorm),
        [&] { lose_a_name_of_the_index(); });
    way("layers", [&] { edit_config("num_hidden_layers", 40); });
    way("model.embed_tokens.weight", [&] { edit_config("hidden_size", 72); });
    way("experts", [&] { edit_config("num_local_experts", 9); });
    way(kExpert, [&] { lose(kExpertScales); });
    way(kExpert, [&] { rename_scales(); });
    way(kNorm, [&] { change_a_shape(); });
    way(
        std::string(kNorm) + ": is float16", [&] { change_a_dtype(); }, true);
  }
};

TEST_F(Broken, IsSaidOfAKnownFamily) { break_in_every_way(true); }

TEST_F(Broken, IsSaidOfAModelOfAnUnknownType) {
  give_an_unknown_type();
  break_in_every_way(false);
}

// Only names and shapes say which of its matrices are of linear layers.
TEST_F(Broken, QuantisingAModelOfAnUnknownTypeSaysWhatIsTaken) {
  const std::string healthy = model;
  model = path("plain");
  ASSERT_EQ(
      ferry("convert " + healthy + " " + model + " --to hf --dtype bf16 --max-shard-size 90kB")
          .code,
      0);
  const std::string convert =
      "convert " + model + " " + path("out") + " --overwrite --to hf --quantize fp8";
  const std::string note = "the model's type is not known here: by their names and shapes ";
  EXPECT_THAT(ferry(convert).out, Not(HasSubstr(note)));
  edit_config("model_type", "unheard_of");
  rename("lm_head.weight", "out_head.weight");
  const std::string last = "model.layers.3.";
  const json names = json::parse(read(index_path()))["weight_map"];
  for (const auto& [name, file] : names.items()) {
    if (name.starts_with(last)) rename(name, "model.visual.blocks." + name.substr(last.size()));
  }
  edit_config("num_hidden_layers", 3);
  const Outcome outcome = ferry(convert);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(note));
  EXPECT_THAT(outcome.out, HasSubstr("model.layers.*.self_attn.q_proj.weight"));
  const json tensors =
      json::parse(ferry("inspect " + path("out") + " --json --tensors").out)["tensors"];
  int left = 0;
  for (const json& tensor : tensors) {
    const auto name = tensor["name"].get<std::string>();
    if (!name.starts_with("out_head.") && !name.starts_with("model.visual.")) continue;
    EXPECT_EQ(tensor["dtype"], "BF16") << tensor;
    ++left;
  }
  EXPECT_GT(left, 12);
}

TEST_F(Broken, APrefixIsTakenOff) {
  const json map = json::parse(read(index_path()))["weight_map"];
  for (const auto& [name, file] : map.items()) rename(name, "module._orig_mod." + name);
  const std::string what = "are wrapped ('module._orig_mod.')";
  EXPECT_THAT(ferry("inspect " + model).out, HasSubstr("are wrapped"));
  EXPECT_EQ(ferry("verify " + model).code, 4);
  EXPECT_THAT(ferry("verify " + model).out, HasSubstr(what));
  const Outcome convert = ferry("convert " + model + " " + path("out") + " --to hf");
  EXPECT_EQ(convert.code, 0);
  EXPECT_THAT(convert.out, HasSubstr(what));
  EXPECT_THAT(ferry("inspect " + path("out") + " --tensors").out, HasSubstr("\nlm_head.weight"));
}

// What a class of rewards or of spans computes with is missing, or is there.
TEST_F(Broken, AnOutputLayerOfAnotherKindIsMissed) {
  for (const char* type : {"mixtral", "unheard_of"}) {
    edit_config("model_type", type);
    edit_config("architectures", {"MixtralForSequenceClassification"});
    const Outcome verify = ferry("verify " + model);
    EXPECT_EQ(verify.code, 4) << type;
    EXPECT_THAT(verify.out, HasSubstr("its output layer is missing (all tensors are in model)"));
    EXPECT_THAT(on_one_line(ferry("inspect " + model).out), HasSubstr("its output layer"));
    EXPECT_EQ(ferry("convert " + model + " " + path("out") + " --to hf").code, 6);
  }
  rename("lm_head.weight", "score.weight");
  for (const char* type : {"mixtral", "unheard_of"}) {
    edit_config("model_type", type);
    const Outcome verify = ferry("verify " + model);
    EXPECT_EQ(verify.code, 0) << verify.out;
  }
}

TEST_F(Broken, AsIsCopiesIt) {
  edit_config("num_hidden_layers", 40);
  EXPECT_EQ(ferry("convert " + model + " " + path("out") + " --to hf").code, 6);
  EXPECT_EQ(ferry("convert " + model + " " + path("out") + " --to hf --as-is").code, 0);
  const Outcome refused =
      ferry("convert " + model + " " + path("b") + " --to hf --as-is --dtype bf16");
  EXPECT_EQ(refused.code, 2);
}

TEST_F(Broken, ShardsWithoutTheirIndexAreRead) {
  name_a_ghost_in_the_index();
  const std::string convert = "convert " + model + " " + path("out") + " --to ";
  for (const std::string target : {"hf", "torch_dist", "safetensors"}) {
    const Outcome refused = ferry(convert + target);
    EXPECT_EQ(refused.code, 6) << target;
    EXPECT_THAT(refused.err, HasSubstr("--index ignore")) << target;
  }
  EXPECT_EQ(ferry(convert + "hf --index ignore").code, 0);
  EXPECT_EQ(ferry("verify " + path("out")).code, 0);
}

TEST_F(Broken, WhatAStateDictOfAnUnknownTypeLacksIsSaid) {
  const std::string plain = path("plain");
  ASSERT_EQ(ferry("convert " + fixture("megatron/hot_llama") + " " + plain + " --to hf").code, 0);
  edit(plain + "/config.json", [](json& config) { config["model_type"] = "unheard_of"; });
  Shard shard(plain + "/model.safetensors");
  shard.remove("model.layers.1.input_layernorm.weight");
  shard.save(path("part.safetensors"));
  const Outcome outcome = ferry("convert " + path("part.safetensors") + " " + path("out") +
                                " --to hf --config " + plain);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("model.layers.1.input_layernorm.weight is missing"));
}

}  // namespace
