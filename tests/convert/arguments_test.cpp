// Megatron's arguments: what they mean, and what nothing can express.
#include "convert/arguments/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "ckpt/base/error.h"
#include "ckpt/megatron/state/vocabulary.h"
#include "convert/recognise.h"
#include "convert/tokenizer.h"
#include "convert/vocabulary.h"
#include "tests/convert/support.h"

namespace ferry {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json base() {
  return {{"num_layers", 2},
          {"hidden_size", 32},
          {"num_attention_heads", 4},
          {"ffn_hidden_size", 88},
          {"kv_channels", 8},
          {"max_position_embeddings", 128},
          {"normalization", "RMSNorm"},
          {"swiglu", true},
          {"add_bias_linear", false},
          {"position_embedding_type", "rope"},
          {"untie_embeddings_and_output_weights", true}};
}

ReadArguments read(const json& changes) {
  json args = base();
  args.update(changes);
  return read_arguments(test::loaded(args).value, "ckpt");
}

std::string family_of(const json& changes) {
  return choose_family(read(changes).architecture, std::nullopt, "ckpt").name;
}

TEST(Arguments, GroupsAreHeadsUnlessGrouped) {
  EXPECT_EQ(read({{"num_query_groups", 1}, {"group_query_attention", false}}).architecture.groups,
            4);
  EXPECT_EQ(read({{"num_query_groups", 2}, {"group_query_attention", true}}).architecture.groups,
            2);
  EXPECT_EQ(read(json::object()).architecture.groups, 4);
}

TEST(Arguments, EpsilonHasTwoNames) {
  EXPECT_EQ(read({{"norm_epsilon", 1e-6}}).architecture.norm_eps, 1e-6);
  EXPECT_EQ(read({{"layernorm_epsilon", 1e-7}}).architecture.norm_eps, 1e-7);
}

TEST(Arguments, FusedBiasAndGeluIsTheTanhForm) {
  const json gelu = {{"swiglu", false}, {"add_bias_linear", true}, {"bias_gelu_fusion", true}};
  EXPECT_EQ(read(gelu).architecture.activation, Activation::gelu_tanh);
  json plain = gelu;
  plain["bias_gelu_fusion"] = false;
  EXPECT_EQ(read(plain).architecture.activation, Activation::gelu);
  json unbiased = gelu;
  unbiased["add_bias_linear"] = false;
  EXPECT_EQ(read(unbiased).architecture.activation, Activation::gelu);
}

TEST(Arguments, WindowCountsTheTokenItself) {
  const Architecture a =
      read({{"window_size", {15, 0}}, {"window_attn_skip_freq", 2}}).architecture;
  EXPECT_EQ(a.window, 16);
  EXPECT_THAT(a.windowed_layers, ElementsAre(true, false));
}

// As Megatron Bridge's functions compute it, whatever the two numbers are by themselves.
TEST(Arguments, OfWindowsInTurnEveryLayerThatTheirSumDividesHasNone) {
  const auto in_turn = [](const json& pattern) {
    return read({{"num_layers", 4}, {"window_size", 16}, {"interleaved_attn_pattern", pattern}});
  };
  EXPECT_THAT(in_turn({2, 1}).architecture.windowed_layers, ElementsAre(true, true, false, true));
  EXPECT_THAT(in_turn({1, 2}).architecture.windowed_layers, ElementsAre(true, true, false, true));
  EXPECT_EQ(in_turn({1, 2}).architecture.window, 16);
  EXPECT_EQ(in_turn({0, 1}).architecture.window, 0);
  EXPECT_THAT(in_turn({0, 0}).problems, Contains(HasSubstr("interleaved_attn_pattern")));
  EXPECT_THAT(in_turn(5).problems, Contains(HasSubstr("interleaved_attn_pattern")));
}

// Here what Gemma 4's layers with experts have not.
TEST(Arguments, WhatALayerSpecHasNotIsSaid) {
  const json args = test::named_model("gemma4_mixture")["args"];
  const Architecture model = read_arguments(test::loaded(args).value, "ckpt").architecture;
  const auto problems = [&](const auto& change) {
    Architecture a = model;
    change(a);
    Draft draft;
    return write_arguments(a, draft, draft.instance("argparse.Namespace")).problems;
  };
  EXPECT_THAT(problems([](Architecture&) {}), IsEmpty());
  EXPECT_THAT(problems([](Architecture& a) {
                a.windowed_layers = {true, true, false, false};
              }),
              ElementsAre(HasSubstr("layer 3 has no window")));
  EXPECT_THAT(problems([](Architecture& a) {
                a.windowed_layers = {true, false, true, true};
              }),
              ElementsAre(HasSubstr("layer 3 has a window")));
  EXPECT_THAT(problems([](Architecture& a) { a.layer_embedding = 8; }),
              ElementsAre(HasSubstr("embeddings of tokens for each layer")));
  EXPECT_THAT(problems([](Architecture& a) { a.kv_taking_layers = 1; }),
              ElementsAre(HasSubstr("keys and values of others")));
}

TEST(Arguments, RopeScaling) {
  const Architecture llama3 =
      read({{"use_rope_scaling", true}, {"rope_scaling_factor", 32}}).architecture;
  EXPECT_EQ(llama3.rope_scaling, RopeScaling::llama3);
  EXPECT_EQ(llama3.rope_factor, 32);
  EXPECT_EQ(llama3.rope_original_positions, 8192);
  EXPECT_EQ(read({{"rotary_seq_len_interpolation_factor", 4}}).architecture.rope_scaling,
            RopeScaling::linear);
  const json latent = {
      {"multi_latent_attention", true}, {"rotary_scaling_factor", 40}, {"mscale", 0.5}};
  EXPECT_EQ(read(latent).architecture.rope_scaling, RopeScaling::yarn);
  EXPECT_EQ(read(latent).architecture.rope_mscale, 0.5);
  json plain = latent;
  plain["rotary_scaling_factor"] = 1.0;
  EXPECT_EQ(read(plain).architecture.rope_scaling, RopeScaling::none);
}

// NeMo keeps constants of the scaling that Megatron-LM has fixed, and uses openai_gelu.
TEST(Arguments, NemoSaysMore) {
  const Architecture a = read({{"use_rope_scaling", true},
                               {"low_freq_factor", 2.0},
                               {"high_freq_factor", 3},
                               {"old_context_len", 4096}})
                             .architecture;
  EXPECT_EQ(a.rope_low_freq_factor, 2);
  EXPECT_EQ(a.rope_high_freq_factor, 3);
  EXPECT_EQ(a.rope_original_positions, 4096);
  json gelu = base();
  gelu.update({{"swiglu", false}, {"openai_gelu", true}});
  EXPECT_EQ(read_arguments(test::loaded(gelu).value, "x").architecture.activation,
            Activation::gelu);
  const LoadedValue nemo = test::loaded(gelu, "nemo.collections.llm.GPTConfig");
  EXPECT_EQ(read_arguments(nemo.value, "x").architecture.activation, Activation::gelu_tanh);
}

TEST(Arguments, LayersWithExperts) {
  EXPECT_THAT(read({{"num_experts", 4}, {"moe_layer_freq", {0, 1}}}).architecture.moe_layers,
              ElementsAre(false, true));
  EXPECT_THAT(read({{"num_experts", 4}, {"moe_layer_freq", 2}}).architecture.moe_layers,
              ElementsAre(true, false));
  EXPECT_THAT(read({{"num_experts", 4}, {"moe_layer_freq", {0, 1, 1}}}).problems,
              Contains(HasSubstr("moe_layer_freq has 3 entries for 2 layers")));
}

TEST(Arguments, WhatNothingCanExpressIsNamed) {
  EXPECT_THAT(read(json::object()).problems, IsEmpty());
  const json changes[] = {
      {{"experimental_attention_variant", "gated_delta_product"}},
      {{"apply_residual_connection_post_layernorm", true}},
      {{"softmax_type", "off-by-one"}},
      {{"qk_l2_norm", true}},
      {{"final_layernorm", false}},
      {{"linear_attention_freq", 4}},
      {{"input_embeddings_multiplier", 2.0}},
      {{"use_mup", true}},
      {{"normalization", "L2Norm"}},
      {{"moe_router_load_balancing_type", "sinkhorn"}, {"num_experts", 4}},
      {{"moe_router_load_balancing_type", {"aux_loss", "quantile_balancing"}}, {"num_experts", 4}}};
  for (const json& change : changes) {
    EXPECT_THAT(read(change).problems, ElementsAre(HasSubstr(change.begin().key()))) << change;
  }
}

TEST(Arguments, ThoseThatAreNotKnownAreNamedUnlessTheySayNothing) {
  EXPECT_THAT(read(json::object()).warnings, IsEmpty());
  const json quiet = {{"output_scale", nullptr}, {"new_norm", false}, {"extra", json::array()}};
  EXPECT_THAT(read(quiet).warnings, IsEmpty());
  const json known = {{"micro_batch_size", 4}, {"wandb_project", "a"}, {"qknorm_impl", "te"}};
  EXPECT_THAT(read(known).warnings, IsEmpty());
  const json unknown = {{"output_scale", 2.5}, {"new_norm", true}, {"kind", "x"}, {"lr", 0.1}};
  EXPECT_THAT(read(unknown).warnings,
              ElementsAre(HasSubstr(": kind='x', new_norm=True, output_scale=2.5; ")));
}

TEST(Arguments, SizesMustBeThereAndPossible) {
  for (const json& change :
       {json{{"num_layers", nullptr}}, json{{"hidden_size", -4}},
        json{{"num_layers", int64_t{1} << 50}}, json{{"num_attention_heads", 0}},
        json{{"group_query_attention", true}, {"num_query_groups", 3}},
        json{{"num_experts", int64_t{1} << 40}}, json{{"num_experts", -1}},
        json{{"num_experts", 90'000}, {"num_layers", 9'000}},
        json{{"mtp_num_layers", int64_t{1} << 62}}, json{{"mtp_num_layers", -5}},
        json{{"num_attention_heads", int64_t{1} << 60}}, json{{"kv_channels", int64_t{1} << 60}}}) {
    EXPECT_THROW(read(change), Error) << change;
  }
  EXPECT_THROW(read_arguments(Value(), "ckpt"), Error);
  constexpr int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(read({{"window_size", {huge, 0}}}).architecture.window, 0);
  EXPECT_EQ(vocabulary_of_arguments(
                test::loaded({{"vocab_size", huge}, {"tokenizer_type", "NullTokenizer"}}).value),
            0);
}

TEST(Recognise, TakesTheMostSpecialFamily) {
  EXPECT_EQ(family_of(json::object()), "llama");
  EXPECT_EQ(family_of({{"window_size", {15, 0}}}), "mistral");
  EXPECT_EQ(family_of({{"add_qkv_bias", true}}), "qwen2");
  EXPECT_EQ(family_of({{"qk_layernorm", true}}), "qwen3");
  EXPECT_EQ(family_of({{"add_bias_linear", true}, {"add_qkv_bias", true}}), "llama");
  EXPECT_EQ(family_of({{"num_experts", 4}}), "mixtral");
  EXPECT_EQ(family_of({{"num_experts", 4}, {"qk_layernorm", true}}), "qwen3_moe");
  EXPECT_EQ(family_of({{"swiglu", false}, {"xielu", true}, {"qk_layernorm", true}}), "apertus");
}

TEST(Recognise, SaysWhatDoesNotFit) {
  const auto message = [](const json& changes, std::optional<std::string> family) -> std::string {
    try {
      choose_family(read(changes).architecture, family, "ckpt");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), family == "bloom" ? ErrorKind::invalid : ErrorKind::mismatch);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(json::object(), "qwen3"), HasSubstr("lacks query/key norms (qk_layernorm)"));
  EXPECT_THAT(message({{"num_experts", 4}}, "llama"),
              HasSubstr("has experts (num_experts), llama has none"));
  EXPECT_THAT(message(json::object(), "bloom"),
              HasSubstr("the families are apertus, bailing_moe_v2, "));
  EXPECT_THAT(message({{"squared_relu", true}, {"swiglu", false}}, std::nullopt),
              HasSubstr("nearest is llama:\n  the model's activation is squared ReLU"));
  EXPECT_THAT(message({{"num_experts", 4}, {"moe_router_pre_softmax", true}}, "mixtral"),
              HasSubstr("moe_router_pre_softmax"));
}

TEST(Vocabulary, ComesFromOptionsTokenizerOrArguments) {
  std::vector<std::string> warnings;
  const auto size = [&](const json& args, const Tokenizer& tokenizer,
                        const ExportOptions& options) {
    warnings.clear();
    const LoadedValue loaded = test::loaded(args);
    return true_vocabulary(loaded.value, tokenizer, 256, options, warnings);
  };
  const json args = {{"vocab_size", 250}, {"tokenizer_type", "GPT2BPETokenizer"}};
  EXPECT_EQ(size(args, {}, {}), 250);
  EXPECT_THAT(warnings, IsEmpty());
  Tokenizer tokenizer;
  tokenizer.vocab = 240;
  EXPECT_EQ(size(args, tokenizer, {}), 250);
  const auto own = [](int64_t vocab) {
    return json{{"vocab_size", vocab}, {"tokenizer_type", "HuggingFaceTokenizer"}};
  };
  EXPECT_EQ(size(own(250), tokenizer, {}), 250);  // a conversion said it
  EXPECT_EQ(size(own(230), tokenizer, {}), 240);
  EXPECT_EQ(size(own(300), tokenizer, {}), 240);
  EXPECT_EQ(size({{"vocab_size", nullptr}}, tokenizer, {}), 240);
  EXPECT_EQ(size(json::object(), {}, {}), 256);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("options.vocab_size")));
  // The old stand-in tokenizer counts its end of document.
  EXPECT_EQ(size({{"vocab_size", 250}, {"tokenizer_type", "NullTokenizer"}}, {}, {}), 251);
  EXPECT_EQ(size({{"vocab_size", 250},
                  {"tokenizer_type", "NullTokenizer"},
                  {"null_tokenizer_eod_id", nullptr}},
                 {}, {}),
            250);
  ExportOptions options;
  options.vocab_size = 250;
  EXPECT_EQ(size(args, {}, options), 250);
  EXPECT_THAT(warnings, IsEmpty());
  options.vocab_size = 257;
  EXPECT_THROW(size(args, {}, options), Error);
  options.vocab_size = 200;
  options.keep_padding = true;
  EXPECT_THROW(size(args, {}, options), Error);
  options.vocab_size = std::nullopt;
  EXPECT_EQ(size(args, {}, options), 256);
}

TEST(Vocabulary, TokensThatAreKnownAreCutOnRequestOnly) {
  std::vector<std::string> warnings;
  const auto cut = [&](const json& args, std::optional<int64_t> tokens, int64_t size, bool force) {
    warnings.clear();
    Tokenizer tokenizer;
    tokenizer.vocab = tokens;
    ExportOptions options;
    options.vocab_size = size;
    options.cut_tokens = force;
    try {
      const LoadedValue loaded = test::loaded(args);
      EXPECT_EQ(true_vocabulary(loaded.value, tokenizer, 256, options, warnings), size);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid);
      return std::string(error.what());
    }
    return std::string(warnings.empty() ? "" : warnings.front());
  };
  const json args = {{"vocab_size", 250}};
  EXPECT_EQ(cut(args, std::nullopt, 250, false), "");
  EXPECT_EQ(cut(args, std::nullopt, 254, false), "");
  EXPECT_EQ(
      cut(args, std::nullopt, 249, false),
      "options.vocab_size=249 would cut off tokens 249 to 249, which the run's arguments count "
      "(vocab_size); options.cut_tokens does so");
  EXPECT_THAT(cut(args, std::nullopt, 200, true), HasSubstr("as options.cut_tokens asks"));
  EXPECT_THAT(cut(args, 253, 250, false), HasSubstr("250 to 252, which the tokenizer has"));
  EXPECT_THAT(cut(json::object(), 240, 239, false), HasSubstr("239 to 239, which the tokenizer"));
  EXPECT_EQ(cut(json::object(), 240, 240, false), "");
  EXPECT_EQ(cut(json::object(), std::nullopt, 1, false), "");
  // A size that the embedding has no room for says nothing; a tokenizer that it has none for does.
  EXPECT_EQ(cut({{"vocab_size", 300}}, 240, 240, false), "");
  EXPECT_THAT(cut(json::object(), 300, 255, false), HasSubstr("255 to 255"));
}

// As transformers and Megatron-LM do: frequencies are those of the part, pairs are whole.
TEST(Architecture, OddPartsOfHeadsAreRotatedInPairs) {
  Architecture a;
  a.head_dim = 6;
  EXPECT_EQ(a.rotary_dim(), 6);
  a.rotary_fraction = 0.5;
  EXPECT_EQ(a.rotary_part(), 3);
  EXPECT_EQ(a.rotary_dim(), 4);
}

TEST(Architecture, MtpLayersAreWindowedAsTheFirstOnes) {
  Architecture a;
  a.layers = 2;
  a.mtp_layers = 1;
  a.window = 8;
  a.windowed_layers = {true, false};
  a.unrotated_layers = {true, false};
  EXPECT_TRUE(a.has_window(2));
  EXPECT_FALSE(a.is_rotated(2));
}

}  // namespace
}  // namespace ferry
