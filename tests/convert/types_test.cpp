// A config.json of a type that no family is: read as one only where nothing that it says, and
// nothing that its class is known to do, computes otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "convert/config_json.h"
#include "convert/export.h"
#include "convert/families/judges.h"
#include "convert/language_part.h"
#include "tests/convert/support.h"

namespace ferry {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A config.json of a model that Llama's class could compute, of a type that nobody knows.
json unknown_config(const json& changes = json::object()) {
  json config = {
      {"model_type", "my_llama"},    {"vocab_size", 256},      {"hidden_size", 64},
      {"intermediate_size", 128},    {"num_hidden_layers", 4}, {"num_attention_heads", 4},
      {"num_key_value_heads", 2},    {"head_dim", 16},         {"max_position_embeddings", 512},
      {"hidden_act", "silu"},        {"rms_norm_eps", 1e-5},   {"rope_theta", 1e4},
      {"tie_word_embeddings", false}};
  config.update(changes);
  return config;
}

std::string error_of(const json& config, const std::optional<std::string>& family,
                     const std::vector<std::string>& ignored = {}) {
  try {
    read_config(config, family, "FOLDER/config.json", ignored);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Types, UnknownMembersAreRefusedUnlessTheUserNamesThem) {
  const json config = unknown_config({{"sparkle", 3}, {"torch_dtype", "bfloat16"}});
  EXPECT_THAT(error_of(config, "llama"),
              HasSubstr("sparkle is 3, which family llama does not read: if it changes nothing, "
                        "options.ignored_members=sparkle leaves it out"));
  const ReadConfig read = read_config(config, "llama", "x", {"sparkle"});
  EXPECT_THAT(read.warnings,
              Contains("config.json's sparkle (3) is ignored: options.ignored_members names it"));
  EXPECT_THAT(read.warnings, Contains(HasSubstr("model_type my_llama is not known")));
  EXPECT_THAT(error_of(config, "llama", {"sparkles"}), HasSubstr("has no member sparkles"));
}

TEST(Types, MembersOfRopeParametersAreJudgedToo) {
  const json config =
      unknown_config({{"rope_parameters", {{"rope_type", "default"}, {"twist", 0.1}}}});
  EXPECT_THAT(error_of(config, "llama"), HasSubstr("rope_parameters.twist is 0.1"));
  EXPECT_EQ(error_of(config, "llama", {"rope_parameters.twist"}), "");
}

TEST(Types, WhatTheFileLeavesOutIsNamed) {
  json config = unknown_config();
  config.erase("rms_norm_eps");
  EXPECT_THAT(read_config(config, "llama", "x").warnings,
              Contains(HasSubstr("assumed, as config.json does not say: rms_norm_eps 1e-06")));
  EXPECT_EQ(read_config(config, "mistral", "x").architecture.window, 0);
  config.erase("model_type");
  EXPECT_THAT(read_config(config, "llama", "x").warnings,
              Contains(HasSubstr("config.json has no model_type")));
  EXPECT_THAT(error_of(config, std::nullopt), HasSubstr("model_type is missing"));
}

struct Meaning {
  json members;
  bool harmless;
};

TEST(Types, ValuesAreJudgedByTheirMeaning) {
  const json full(4, "full_attention"), ones(4, 1);
  json mixed = full, skipping = ones;
  mixed[1] = "sliding_attention";
  skipping[3] = 0;
  const json plain = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  json other = plain;
  other["rope_theta"] = 1e6;
  const Meaning cases[] = {
      {{{"layer_types", full}}, true},
      {{{"layer_types", mixed}}, false},
      {{{"layer_types", json(3, "full_attention")}}, false},
      {{{"no_rope_layers", ones}, {"no_rope_layer_interval", 4}}, true},
      {{{"no_rope_layers", skipping}}, false},
      {{{"no_rope_layer_interval", 4}}, false},
      {{{"sliding_window", nullptr}}, true},
      {{{"sliding_window", 8}}, false},
      {{{"sliding_window", 8}, {"use_sliding_window", false}, {"max_window_layers", 2}}, true},
      {{{"sliding_window", 8}, {"use_sliding_window", true}}, false},
      {{{"sliding_window", 8}, {"layer_types", full}}, true},
      {{{"attention_multiplier", 0.25}}, true},  // of heads of 16
      {{{"attention_multiplier", 1.0}}, false},
      {{{"query_pre_attn_scalar", 16}}, true},
      {{{"query_pre_attn_scalar", 256}}, false},
      {{{"logits_scaling", 1.0}}, true},
      {{{"logits_scaling", 8.0}}, false},
      {{{"final_logit_softcapping", nullptr}}, true},
      {{{"final_logit_softcapping", 30.0}}, false},
      {{{"partial_rotary_factor", 1.0}}, true},
      {{{"partial_rotary_factor", 0.5}}, false},
      {{{"qkv_bias", false}}, true},
      {{{"qkv_bias", true}}, false},
      {{{"rope_parameters", {{"full_attention", plain}, {"sliding_attention", plain}}}}, true},
      {{{"rope_parameters", {{"full_attention", plain}, {"sliding_attention", other}}}}, false},
      {{{"mask_token_id", 7}}, false},  // of models that do not go from left to right
      {{{"text_config", json::object()}}, false},
  };
  for (const Meaning& each : cases) {
    EXPECT_EQ(error_of(unknown_config(each.members), "llama").empty(), each.harmless)
        << each.members;
  }
}

TEST(Types, ThoseThatComputeOtherwiseAreNeverRead) {
  for (const char* type : {"helium", "granite", "cwm", "kimi_linear", "step3p5"}) {
    const json config = unknown_config({{"model_type", type}});
    EXPECT_THAT(error_of(config, "llama"), HasSubstr("computes otherwise")) << type;
    EXPECT_THAT(error_of(config, std::nullopt), Not(HasSubstr("options.family"))) << type;
    EXPECT_EQ(error_of(config, "llama", {"model_type"}), "") << type;
  }
}

// Where a model has several parts, its language model's own type says why, or what reads it.
TEST(Types, ThatOfTheLanguageModelInsideIsSaid) {
  const auto error_inside = [](const char* outer, const char* inner) {
    const json text = unknown_config({{"model_type", inner}});
    const auto part = language_part({{"model_type", outer}, {"text_config", text}}, std::nullopt);
    return part ? error_of(*part, std::nullopt) : "no part";
  };
  EXPECT_THAT(error_inside("mistral3", "mistral4"), HasSubstr("queries are scaled"));
  EXPECT_THAT(error_inside("gemma4_unified", "gemma4_unified_text"),
              HasSubstr("options.family=gemma4_text reads it"));
  EXPECT_EQ(error_inside("seeing", "unheard_of"), "no part");
}

TEST(Types, WhyMegatronHasNoSuchModelIsSaid) {
  const json config = unknown_config({{"model_type", "deepseek_v4"}});
  EXPECT_THAT(error_of(config, std::nullopt), HasSubstr("several residual streams"));
  // Neither in transformers nor a family: known for that alone.
  const json unknown = unknown_config({{"model_type", "kimi_k3"}});
  EXPECT_THAT(error_of(unknown, "llama"), HasSubstr("Kimi's delta attention"));
}

TEST(Types, ThoseThatComputeTheSameAreOffered) {
  json config = unknown_config({{"model_type", "internlm3"}});
  EXPECT_THAT(error_of(config, std::nullopt), HasSubstr("options.family=llama reads it as that"));
  EXPECT_THAT(error_of(config, "mistral"), HasSubstr("which computes what llama does"));
  EXPECT_THAT(read_config(config, "llama", "x").warnings, IsEmpty());
  config.erase("head_dim");
  config.erase("rms_norm_eps");
  const Architecture a = read_config(config, "llama", "x").architecture;
  EXPECT_EQ(a.head_dim, 128);  // as the type's class has it, not Llama's
  EXPECT_EQ(a.norm_eps, 1e-5);
}

TEST(Types, UnifiedGemma4HasNoEmbeddingsForEachLayer) {
  json config = test::named_model("gemma4_text")["config"];
  config.update({{"model_type", "gemma4_unified_text"}, {"architectures", json()}});
  config.erase("hidden_size_per_layer_input");
  config.erase("sliding_window");
  EXPECT_THAT(error_of(config, std::nullopt),
              HasSubstr("options.family=gemma4_text reads it as that"));
  const Architecture a = read_config(config, "gemma4_text", "x").architecture;
  EXPECT_EQ(a.layer_embedding, 0);
  EXPECT_EQ(a.window, 1024);
}

TEST(Types, MinistralHasItsWindowInAllLayers) {
  json kinds(4, "sliding_attention");
  const json window = {{"model_type", "ministral"}, {"sliding_window", 8}};
  json config = unknown_config(window);
  config["layer_types"] = kinds;
  EXPECT_EQ(error_of(config, "mistral"), "");
  kinds[2] = "full_attention";
  config["layer_types"] = kinds;
  EXPECT_THAT(error_of(config, "mistral"), HasSubstr("layer_types is"));
}

TEST(Types, UnreadMembersOfAFamilysOwnTypeAreNamed) {
  const json config = unknown_config({{"model_type", "llama"},
                                      {"final_logit_softcapping", 30.0},
                                      {"pretraining_tp", 1},
                                      {"_name_or_path", "x"}});
  const ReadConfig read = read_config(config, std::nullopt, "x");
  EXPECT_THAT(read.warnings, Contains("config.json has members that LlamaForCausalLM does not "
                                      "read: final_logit_softcapping 30.0"));
}

// Where model_type is missing, the class's name says what it is.
TEST(Types, ClassesThatComputeOtherwiseAreNeverReadEither) {
  for (const char* name : {"Gemma2ForCausalLM", "HeliumForCausalLM", "CwmForCausalLM"}) {
    json config = unknown_config({{"architectures", {name}}});
    EXPECT_EQ(error_of(config, "llama"), "") << name;  // its own model_type counts
    config.erase("model_type");
    EXPECT_THAT(error_of(config, "llama"), HasSubstr("computes otherwise")) << name;
    EXPECT_THAT(error_of(config, std::nullopt), HasSubstr("model_type is missing")) << name;
  }
  json ernie = unknown_config({{"architectures", {"Ernie4_5ForCausalLM"}}});
  ernie.erase("model_type");
  EXPECT_THAT(error_of(ernie, "llama"), HasSubstr("model_type is 'ernie4_5', not 'llama'"));
  EXPECT_EQ(read_config(ernie, std::nullopt, "x").family->name, "ernie4_5");
  json config = unknown_config({{"architectures", {"InternLM3ForCausalLM"}}});
  config.erase("model_type");
  EXPECT_THAT(error_of(config, std::nullopt), HasSubstr("options.family=llama reads it as that"));
  config.erase("architectures");
  EXPECT_THAT(error_of(config, std::nullopt), HasSubstr("model_type is missing"));
  EXPECT_THAT(read_config(config, "llama", "x").warnings,
              Contains(HasSubstr("compare logits before you use it")));
}

TEST(Types, CodeOfTheFoldersOwnIsNamed) {
  const json map = {{"AutoModelForCausalLM", "modeling_x.XForCausalLM"}};
  const json config = unknown_config({{"model_type", "llama"}, {"auto_map", map}});
  EXPECT_THAT(read_config(config, std::nullopt, "x").warnings,
              Contains(HasSubstr("auto_map: modeling_x.XForCausalLM")));
}

TEST(Types, EveryFamilyNamesItsJudges) {
  for (const std::string& name : export_families()) EXPECT_NE(judges_of(name), nullptr) << name;
}

}  // namespace
}  // namespace ferry
