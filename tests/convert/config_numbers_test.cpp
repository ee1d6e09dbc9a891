// Numbers of a config.json that are none: whatever stands where a size is expected, the message
// names the file, the member, what was found and what is expected, and nothing is divided by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ckpt/base/error.h"
#include "convert/config_json.h"
#include "tests/convert/support.h"

namespace ferry {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json config_of(const std::string& name) { return test::named_model(name)["config"]; }

// Why a config is refused; empty when it is taken.
std::string refusal(const json& config) {
  try {
    read_config(config, std::nullopt, "FOLDER/config.json");
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::internal) << error.what();
    return error.what();
  }
  return {};
}

// For people, the same is read without being checked: anything but a crash.
void expect_recognised_or_refused(const json& config) {
  try {
    read_architecture(*find_family(config["model_type"].get<std::string>()), config);
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::internal) << error.what();
  }
}

const std::vector<json> kNoSizes = {"8",
                                    1.5,
                                    4.0,
                                    -1,
                                    std::numeric_limits<int64_t>::min(),
                                    int64_t{1} << 62,
                                    uint64_t{1} << 63,
                                    1e300,
                                    true,
                                    json::array({4}),
                                    json::object()};

class ConfigNumbers : public testing::TestWithParam<std::string> {};

void expect_refused(json config, const std::string& key, const json& value) {
  config[key] = value;
  EXPECT_THAT(refusal(config), AllOf(HasSubstr("FOLDER/config.json"), HasSubstr(key),
                                     HasSubstr("not a whole number from ")))
      << value;
  expect_recognised_or_refused(config);
}

TEST_P(ConfigNumbers, WhereASizeIsExpectedNothingElseIsTaken) {
  using A = Architecture;
  const json config = config_of(GetParam());
  ASSERT_EQ(refusal(config), "");
  const Family& family = *find_family(config["model_type"].get<std::string>());
  const Architecture a = read_config(config, std::nullopt, "x").architecture;
  const std::vector<int64_t A::*> may_be_left_out = {&A::groups, &A::head_dim, &A::mtp_layers};
  const std::vector<int64_t A::*> of_experts = {&A::experts, &A::expert_ffn, &A::experts_per_token,
                                                &A::shared_ffn};
  for (const ConfigRow& row : family.config) {
    if (row.size == nullptr) continue;
    const std::string& key = row.keys.front();
    SCOPED_TRACE(key);
    for (const json& value : kNoSizes) expect_refused(config, key, value);
    const auto is_one_of = [&](const std::vector<int64_t A::*>& members) {
      return std::find(members.begin(), members.end(), row.size) != members.end();
    };
    const bool optional = is_one_of(may_be_left_out) || key == "n_inner" || !config.contains(key) ||
                          (a.experts == 0 && is_one_of(of_experts));
    if (optional) continue;
    expect_refused(config, key, 0);
    expect_refused(config, key, json());
    json without = config;
    without.erase(key);
    expect_recognised_or_refused(without);
    if (json::parse(family.defaults).contains(key)) continue;
    EXPECT_THAT(refusal(without), AllOf(HasSubstr("FOLDER/config.json"), HasSubstr(key),
                                        HasSubstr("is missing; it must be a whole number from 1")));
  }
}

TEST_P(ConfigNumbers, WhateverElseIsReadAsANumberIsOneToo) {
  const json config = config_of(GetParam());
  const Family& family = *find_family(config["model_type"].get<std::string>());
  std::vector<ConfigNumber> numbers;
  for (const ConfigRow& row : family.config) {
    if (row.size == nullptr) numbers.insert(numbers.end(), row.numbers.begin(), row.numbers.end());
  }
  for (const ConfigNumber& number : numbers) {
    const std::string& key = number.key;
    SCOPED_TRACE(key);
    json used = config;
    if (!number.with.empty()) used[std::string(number.with)] = true;
    if (!number.real) {
      for (const json& value : kNoSizes) expect_refused(used, key, value);
      if (number.least > 0) expect_refused(used, key, 0);
      continue;
    }
    for (const json& value : {json("8"), json(std::nan("")), json(true)}) {
      used[key] = value;
      EXPECT_THAT(refusal(used), AllOf(HasSubstr("FOLDER/config.json"), HasSubstr(key)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConfigNumbers, testing::ValuesIn(test::model_names()),
                         [](const auto& suite) { return suite.param; });

TEST(ConfigNumbers, TheScalingOfPositionsIsInNumbers) {
  json config = config_of("llama");
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", "2"}};
  EXPECT_THAT(refusal(config), HasSubstr("factor is \"2\", not a number"));
  config["rope_scaling"]["factor"] = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal(config), HasSubstr("factor is Infinity, not a finite number"));
  config["rope_scaling"] = {{"rope_type", "llama3"}, {"original_max_position_embeddings", -4}};
  EXPECT_THAT(refusal(config), HasSubstr("original_max_position_embeddings is -4"));
  config = config_of("llama");
  config["rms_norm_eps"] = -std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal(config), HasSubstr("rms_norm_eps is -Infinity, not a finite number"));
}

TEST(ConfigNumbers, WhatNormsAddIsSmallAndPositive) {
  json config = config_of("llama");
  for (const json& value : {json(-1), json(0), json(1), json(-1e-6), json(1e18)}) {
    config["rms_norm_eps"] = value;
    EXPECT_THAT(refusal(config), AllOf(HasSubstr("FOLDER/config.json"),
                                       HasSubstr("rms_norm_eps is " + value.dump() +
                                                 ", not a number above 0 and below 1")));
  }
  config["rms_norm_eps"] = 0.1;
  EXPECT_EQ(refusal(config), "");
  config = config_of("gpt2");
  config["layer_norm_epsilon"] = -1;
  EXPECT_THAT(refusal(config), HasSubstr("layer_norm_epsilon is -1, not a number above 0"));
}

TEST(ConfigNumbers, ExpertsAreEnough) {
  json config = config_of("mixtral");
  config["num_experts_per_tok"] = 99;
  EXPECT_THAT(refusal(config), HasSubstr("a token goes to 99 experts (num_experts_per_tok)"));
  config = config_of("deepseek_v3");
  config["n_group"] = 3;
  config["topk_group"] = 2;
  EXPECT_THAT(refusal(config), HasSubstr("experts do not divide into 3 groups"));
}

TEST(ConfigNumbers, NoMoreThanAHeadIsRotated) {
  json config = config_of("glm4_moe");
  EXPECT_EQ(refusal(config), "");
  for (const double part : {-0.5, 1.5}) {
    config["rope_parameters"]["partial_rotary_factor"] = part;
    EXPECT_THAT(refusal(config), HasSubstr("not a number from 0 to 1")) << part;
  }
}

TEST(ConfigNumbers, ATokenUsesGroupsThatExist) {
  json config = config_of("glm4_moe");
  config["topk_group"] = 3;
  EXPECT_THAT(refusal(config),
              HasSubstr("a token uses 3 groups (topk_group) where there are 2 (n_group)"));
}

TEST(ConfigNumbers, LayersWithoutPositionsAreListedAsNumbers) {
  const std::vector<json> wrong = {json::array({true, true, false, true}),
                                   json::array({"1", "1", "0", "1"}), json::array({1, 1, 0}),
                                   json::object()};
  for (const json& list : wrong) {
    json config = config_of("smollm3");
    config["no_rope_layers"] = list;
    EXPECT_THAT(refusal(config), HasSubstr("no_rope_layers is ")) << list;
  }
}

TEST(ConfigNumbers, LongValuesAreShownByTheirBeginning) {
  json config = config_of("llama");
  config["hidden_size"] = std::string(1 << 20, 'x');
  EXPECT_LT(refusal(config).size(), 1000u);
}

struct OddMembers {
  const char* model;
  json changes;
  const char* reason;  // nullptr: it is a model
};

// transformers' classes fail with these, or compute what Megatron does not.
TEST(OddConfigs, AreRefused) {
  const json sliding = {"sliding_attention", "full_attention", "sliding_attention",
                        "full_attention"};
  const json linear = {{"rope_type", "linear"}, {"rope_theta", 1e4}};
  const std::vector<OddMembers> cases = {
      {"llama", {{"rms_norm_eps", nullptr}}, "rms_norm_eps is null"},
      {"llama", {{"mlp_bias", nullptr}}, "mlp_bias is null, which LlamaForCausalLM does not take"},
      {"glm4_moe", {{"head_dim", nullptr}}, "head_dim is null"},
      {"glm4_moe", {{"routed_scaling_factor", nullptr}}, "routed_scaling_factor is null"},
      {"deepseek_v3", {{"norm_topk_prob", nullptr}}, "norm_topk_prob is null"},
      {"deepseek_v3", {{"rope_interleave", nullptr}}, "rope_interleave is null"},
      {"glm4_moe", {{"topk_group", 0}}, "topk_group is 0"},
      {"deepseek_v2_plain_queries", {{"n_group", nullptr}}, "n_group is missing"},
      {"deepseek_v2", {{"topk_method", "noaux_tc"}}, "topk_method is \"noaux_tc\""},
      {"glm4_moe", {{"layer_types", sliding}}, "layer_types is [\"sliding_attention\""},
      {"smollm3", {{"layer_types", sliding}, {"sliding_window", 8}}, "layer_types is"},
      {"mistral", {{"layer_types", sliding}}, "layer_types is"},
      {"qwen3", {{"layer_types", sliding}, {"sliding_window", 8}}, "layer_types is"},
      {"llama", {{"rope_parameters", linear}}, "the scaling of positions (linear) has no factor"},
      {"llama", {{"rope_parameters", {{"rope_theta", nullptr}}}}, "rope_theta is null"},
      {"llama", {{"rope_parameters", {{"rope_type", nullptr}}}}, "rope_type is null"},
      {"llama", {{"partial_rotary_factor", 0.5}}, "this model type rotates whole heads"},
      {"llama", {{"head_dim", 7}}, "an even number of elements, not 7"},
      {"glm4_moe",
       {{"rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", nullptr}}}},
       "partial_rotary_factor in the parameters of positions is null"}};
  for (const OddMembers& odd : cases) {
    json config = config_of(odd.model);
    config.update(odd.changes);
    EXPECT_THAT(refusal(config), HasSubstr(odd.reason)) << odd.model << odd.changes;
  }
}

TEST(OddConfigs, AreModelsWhereTheClassComputesTheSame) {
  const std::vector<OddMembers> cases = {
      {"llama", {{"head_dim", nullptr}, {"num_key_value_heads", nullptr}}, nullptr},
      {"llama", {{"rope_theta", nullptr}, {"rope_scaling", nullptr}}, nullptr},
      {"deepseek_v2", {{"n_group", nullptr}, {"topk_group", nullptr}}, nullptr},
      {"deepseek_v2", {{"norm_topk_prob", nullptr}}, nullptr},
      {"glm4_moe", {{"topk_method", "greedy"}}, nullptr},
      {"glm4_moe", {{"head_dim", 6}}, nullptr},  // 3 elements are rotated as 4
      {"glm4_moe", {{"first_k_dense_replace", 9}}, nullptr},
      {"glm4_moe", {{"num_nextn_predict_layers", nullptr}}, nullptr},
      {"qwen3", {{"sliding_window", nullptr}, {"layer_types", nullptr}}, nullptr},
      {"smollm3", {{"no_rope_layers", nullptr}}, nullptr}};
  for (const OddMembers& odd : cases) {
    json config = config_of(odd.model);
    config.update(odd.changes);
    EXPECT_EQ(refusal(config), "") << odd.model << odd.changes;
  }
  json greedy = config_of("glm4_moe");
  greedy["topk_method"] = "greedy";  // which this class does not read
  EXPECT_TRUE(read_config(greedy, std::nullopt, "x").architecture.limits_groups());
  json qwen = config_of("qwen2_windows");
  qwen.erase("sliding_window");
  EXPECT_EQ(read_config(qwen, std::nullopt, "x").architecture.window, 4096);
  EXPECT_THAT(read_config(config_of("gpt2"), std::nullopt, "x").warnings, testing::IsEmpty());
}

}  // namespace
}  // namespace ferry
