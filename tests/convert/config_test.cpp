// config.json -> Architecture: what transformers writes says what Megatron's arguments for the same
// model say, older ways of saying it too, and what Megatron cannot be is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "convert/arguments/argument_table.h"
#include "convert/arguments/arguments.h"
#include "convert/config_json.h"
#include "tests/convert/support.h"

namespace ferry {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Architecture read(const std::string& name, const json& changes = json::object()) {
  json config = test::named_model(name)["config"];
  config.update(changes);
  return read_config(config, std::nullopt, name).architecture;
}

std::string refusal(const std::string& name, const json& changes) {
  try {
    read(name, changes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    return error.what();
  }
  return "not refused";
}

class Configs : public testing::TestWithParam<std::string> {};

// As transformers 5 reads them: AutoConfig.from_pretrained(...).rope_parameters.
TEST(Config, OfTwoWaysToSayTheScalingTheOlderCounts) {
  const json plain = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  const json scaled = {{"rope_type", "linear"}, {"factor", 4.0}};
  const auto read_both = [&](const json& parameters, const json& scaling) {
    return read("llama", {{"rope_parameters", parameters}, {"rope_scaling", scaling}});
  };
  const Architecture older = read_both(plain, scaled);
  EXPECT_EQ(older.rope_scaling, RopeScaling::linear);
  EXPECT_EQ(older.rope_factor, 4.0);
  EXPECT_EQ(older.rope_theta, 1e4);
  for (const json& nothing : {json(), json::object()}) {
    const Architecture newer = read_both(plain, nothing);
    EXPECT_EQ(newer.rope_scaling, RopeScaling::none);
    EXPECT_EQ(newer.rope_theta, 5e5);
  }
}

TEST_P(Configs, SaysWhatTheArgumentsSay) {
  const json both = test::named_model(GetParam());
  const LoadedValue args = test::loaded(both["args"]);
  const Architecture expected = read_arguments(args.value, GetParam()).architecture;
  const Architecture found = read(GetParam());
  // Not in a config.json, of no effect on this model, the same in another word, seen in the
  // tensors.
  std::set<std::string_view> elsewhere = {"padded_vocab_size",
                                          "hidden_dropout",
                                          "moe_router_enable_expert_bias",
                                          "moe_router_topk_scaling_factor",
                                          "add_qkv_bias",
                                          "kv_channels"};
  if (expected.mla) elsewhere.insert("moe_aux_loss_coeff");  // transformers does not save it
  if (expected.all_moe()) elsewhere.insert("ffn_hidden_size");
  if (expected.position_kind == Positions::learned) elsewhere.insert("rotary_base");
  if (expected.router_score == RouterScore::sigmoid) elsewhere.insert("moe_router_pre_softmax");
  for (const Argument& argument : plain_arguments()) {
    if (!has_argument(argument.of, expected) || elsewhere.contains(argument.name)) continue;
    std::visit([&](auto member) { EXPECT_EQ(found.*member, expected.*member) << argument.name; },
               argument.member);
  }
  EXPECT_EQ(found.vocab, 250);
  EXPECT_EQ(found.activation, expected.activation);
  EXPECT_EQ(found.norm, expected.norm);
  EXPECT_EQ(found.tied, expected.tied);
  EXPECT_EQ(found.position_kind, expected.position_kind);
  if (!expected.mla) {
    EXPECT_EQ(found.groups, expected.groups);
    EXPECT_EQ(found.head_dim, expected.head_dim);
  }
  EXPECT_EQ(found.rope_scaling, expected.rope_scaling);
  EXPECT_EQ(found.rope_factor, expected.rope_factor);
  if (expected.rope_scaling == RopeScaling::llama3 || expected.rope_scaling == RopeScaling::yarn) {
    EXPECT_EQ(found.rope_original_positions, expected.rope_original_positions);
    EXPECT_EQ(found.rope_mscale_all_dim, expected.rope_mscale_all_dim);
  }
  EXPECT_EQ(found.window, expected.window);
  EXPECT_EQ(found.windowed_layers, expected.windowed_layers);
  EXPECT_EQ(found.moe_layers, expected.moe_layers);
  EXPECT_EQ(found.router_scale == 0 ? 1 : found.router_scale,
            expected.router_scale == 0 ? 1 : expected.router_scale);
  if (expected.experts > 0) {
    EXPECT_EQ(found.router_score, expected.router_score);
  }
}

// The same in the words of transformers 4, without what its classes have by default.
TEST_P(Configs, OlderFilesSayTheSame) {
  json config = test::named_model(GetParam())["config"];
  if (config["model_type"] == "gemma4_text") return;  // whose first release had rope_parameters
  const Architecture expected = read_config(config, std::nullopt, "new").architecture;
  if (config.contains("rope_parameters")) {
    json scaling = config["rope_parameters"];
    if (scaling.contains("full_attention")) {
      config["rope_local_base_freq"] = scaling["sliding_attention"]["rope_theta"];
      scaling = json(scaling["full_attention"]);
    }
    config["rope_theta"] = scaling["rope_theta"];
    scaling.erase("rope_theta");
    scaling["type"] = scaling["rope_type"];
    scaling.erase("rope_type");
    config["rope_scaling"] = scaling["type"] == "default" ? json() : scaling;
    config.erase("rope_parameters");
  }
  for (const char* key : {"hidden_act", "layer_types", "attention_bias", "mlp_bias", "dtype"}) {
    const bool is_needed =
        key == std::string("layer_types") &&
        (config["model_type"] == "gpt_oss" || GetParam() == std::string("exaone4_no_positions"));
    if (config.contains(key) && config[key] != true && !is_needed) config.erase(key);
  }
  const Architecture found = read_config(config, std::nullopt, "old").architecture;
  EXPECT_EQ(found.rope_theta, expected.rope_theta);
  EXPECT_EQ(found.rope_scaling, expected.rope_scaling);
  EXPECT_EQ(found.rope_factor, expected.rope_factor);
  EXPECT_EQ(found.activation, expected.activation);
  EXPECT_EQ(found.windowed_layers, expected.windowed_layers);
}

// Arguments -> config.json -> Architecture -> config.json.
TEST_P(Configs, WrittenConfigReadsBack) {
  const LoadedValue args = test::loaded(test::named_model(GetParam())["args"]);
  Architecture a = read_arguments(args.value, GetParam()).architecture;
  a.vocab = 250;
  const std::string type = test::named_model(GetParam())["config"]["model_type"];
  const Family& family = *find_family(type);
  std::vector<std::string> unused;
  const SpecialTokens tokens{1, std::nullopt, {2, 3}};
  const json written = config_json(family, a, DType::bf16, tokens, unused);
  const ReadConfig read = read_config(written, type, "written");
  EXPECT_EQ(config_json(family, read.architecture, DType::bf16, read.tokens, unused), written);
}

INSTANTIATE_TEST_SUITE_P(All, Configs, testing::ValuesIn(test::model_names()),
                         [](const auto& suite) { return suite.param; });

TEST(ReadConfig, WhatMegatronCannotBeIsRefusedByName) {
  EXPECT_THAT(refusal("llama", {{"hidden_act", "gelu"}}), HasSubstr("activation is GELU"));
  EXPECT_THAT(refusal("llama", {{"attention_bias", true}}), HasSubstr("attention_bias is true"));
  EXPECT_THAT(refusal("qwen3", {{"attention_bias", true}}), HasSubstr("attention_bias is true"));
  EXPECT_THAT(refusal("llama", {{"mlp_bias", true}}),
              HasSubstr("attention_bias is false and mlp_bias is true"));
  EXPECT_THAT(refusal("llama", {{"num_attention_heads", "4"}}),
              HasSubstr("num_attention_heads is \"4\", not a whole number from 1 to"));
  EXPECT_THAT(refusal("llama", {{"attention_bias", 1}}),
              HasSubstr("attention_bias is 1, not true or false"));
  EXPECT_THAT(refusal("llama", {{"rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}),
              HasSubstr("the scaling of positions is dynamic"));
  EXPECT_THAT(refusal("llama", {{"partial_rotary_factor", 0.5}}),
              HasSubstr("partial_rotary_factor is 0.5"));
  EXPECT_THAT(refusal("deepseek_v3", {{"scoring_func", "softmax"}}),
              HasSubstr("scoring_func is \"softmax\""));
  EXPECT_THAT(refusal("deepseek_v2", {{"norm_topk_prob", true}}),
              HasSubstr("norm_topk_prob is true"));
  EXPECT_THAT(refusal("gpt2", {{"scale_attn_by_inverse_layer_idx", true}}),
              HasSubstr("scale_attn_by_inverse_layer_idx is true"));
  EXPECT_THAT(refusal("gpt2", {{"activation_function", "relu"}}), HasSubstr("activation"));
  EXPECT_THAT(refusal("llama", {{"num_attention_heads", "four"}}),
              HasSubstr("num_attention_heads is \"four\""));
  EXPECT_THAT(
      refusal("deepseek_v2_plain_queries",
              {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 40.0}, {"mscale", 0.5}}}}),
      HasSubstr("YaRN's attention factor"));
  EXPECT_THAT(refusal("llama", {{"model_type", "bert"}}), HasSubstr("model_type is 'bert'"));
  EXPECT_THAT(refusal("gemma4_mixture", {{"num_experts", nullptr}}),
              HasSubstr("num_experts is null, not a whole number from 1"));
  EXPECT_THAT(refusal("gemma4_mixture", {{"top_k_experts", 5}}),
              HasSubstr("a token goes to 5 experts (top_k_experts) where there are 4"));
}

// Well-known models have as many elements as transformers' own model of their config.json.
TEST(ReadConfig, PublishedModelsAreOfTheirSize) {
  const json models = test::read_json(FERRY_FIXTURES "/published_configs.json");
  for (const auto& [name, model] : models.items()) {
    SCOPED_TRACE(name);
    const ReadConfig read = read_config(model["config"], std::nullopt, name);
    Architecture a = read.architecture;
    a.padded_vocab = a.vocab;
    a.mtp_layers = 0;
    const std::set<std::string> of_biases = {"deepseek_v3", "glm_moe_dsa", "nemotron_h"};
    a.expert_bias = of_biases.contains(read.family->name);  // seen in the tensors
    int64_t elements = 0;
    for (const Link& link : expand(*read.family, a)) {
      if (!link.rule->copies) elements += element_count(link.shape, name);
    }
    for (int64_t layer = 0; layer < a.layers; ++layer) {  // Megatron has rows for both
      const Architecture own = a.in_layer(layer);
      if (a.keys_are_values(layer)) elements -= own.groups * own.head_dim * own.hidden;
    }
    EXPECT_EQ(elements, model["elements"]);
    Draft draft;
    const WrittenArguments args = write_arguments(a, draft, draft.instance("argparse.Namespace"));
    EXPECT_THAT(args.problems, testing::IsEmpty());
  }
}

TEST(ReadConfig, DropoutMattersForTrainingAlone) {
  json config = test::named_model("gpt2")["config"];
  config["embd_pdrop"] = 0.5;
  const ReadConfig read = read_config(config, std::nullopt, "gpt2");
  EXPECT_THAT(read.warnings, testing::Contains(HasSubstr("pdrop")));
}

TEST(ReadConfig, TokensAndQuantisationAreRead) {
  json config = test::named_model("deepseek_v3")["config"];
  config["eos_token_id"] = {7, 8};
  config["bos_token_id"] = 1;
  config["quantization_config"] = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 64}}};
  const ReadConfig read = read_config(config, "deepseek_v3", "x");
  EXPECT_EQ(read.tokens.eos, (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(read.tokens.bos, 1);
  EXPECT_EQ(read.quantisation->block, (Dims{128, 64}));
}

TEST(ReadConfig, HostileFilesAreRefused) {
  for (const json& changes :
       {json{{"num_hidden_layers", int64_t{1} << 60}}, json{{"num_hidden_layers", -1}},
        json{{"num_hidden_layers", uint64_t{1} << 63}}, json{{"rope_parameters", {1, 2}}},
        json{{"hidden_act", {1}}}, json{{"tie_word_embeddings", "yes"}}}) {
    EXPECT_THROW(read("llama", changes), Error) << changes;
  }
  EXPECT_THROW(read("qwen2_moe", {{"mlp_only_layers", "all"}}), Error);
  EXPECT_THROW(read_config(json::object(), std::nullopt, "empty"), Error);
}

}  // namespace
}  // namespace ferry
