// Megatron -> Hugging Face -> Megatron -> Hugging Face over real checkpoints and over models of
// every family, at several layouts in both formats.
#include "convert/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "tests/convert/models.h"

namespace ferry {
namespace {

using nlohmann::json;
using test::Bytes;
using test::File;
using test::Model;
using test::names_in;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class RealCheckpoints : public testing::TestWithParam<std::string> {};

TEST_P(RealCheckpoints, ComeBackWithTheSameNamesAndBytes) {
  // Megatron Core's local modules have names of their own for norms.
  const std::string core = FERRY_FIXTURES "/core/" + GetParam();
  const bool old = std::filesystem::exists(core);
  const std::string path = old ? core : FERRY_FIXTURES "/megatron/" + GetParam();
  test::expect_round_trip(open_checkpoint(posix_file_system(), path), !old);
}

INSTANTIATE_TEST_SUITE_P(All, RealCheckpoints, testing::ValuesIn(names_in("/hf_golden")),
                         [](const auto& suite) { return suite.param; });

class Models : public testing::TestWithParam<std::string> {};

TEST_P(Models, ComeBackWithTheSameNamesAndBytes) {
  Model model(GetParam());
  // transformers always has the router's bias: a model without one gets zeros.
  test::expect_round_trip(model.megatron(), GetParam() != "deepseek_v3_no_bias");
}

TEST_P(Models, ArgumentsMakeTheSameModel) {
  Model model(GetParam());
  const Import import = import_model(model.hugging_face(), {});
  const ReadArguments read = read_arguments(import.state.args.value, GetParam());
  EXPECT_THAT(read.problems, testing::IsEmpty());
  const Architecture &a = read.architecture, &b = model.architecture;
  EXPECT_EQ(a.padded_vocab, 256);
  EXPECT_EQ(a.groups, b.mla ? b.heads : b.groups);
  EXPECT_EQ(a.moe_layers, b.moe_layers);
  EXPECT_EQ(a.windowed_layers, b.windowed_layers);
  EXPECT_EQ(choose_family(a, std::nullopt, GetParam()).name, model.family->name);
  EXPECT_EQ(import.state.iteration, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(names_in("/hf_names")),
                         [](const auto& suite) { return suite.param; });

TEST(Import, PredictionLayersComeBack) {
  Model model("deepseek_v3", {{"mtp_num_layers", 2}});
  ASSERT_TRUE(model.tensors.contains("mtp.layers.1.transformer_layer.mlp.router.weight"));
  test::expect_round_trip(model.megatron(), true);
}

// transformers keeps the number of prediction layers, but drops their tensors, when it saves.
TEST(Import, PredictionLayersThatAreNotThereAreReported) {
  Model model("deepseek_v3");
  const Checkpoint checkpoint = model.hugging_face();
  json config = json::parse(model.files->get("hf/config.json"));
  config["num_nextn_predict_layers"] = 1;
  model.files->put("hf/config.json", config.dump());
  const Import import = import_model(checkpoint, {});
  EXPECT_THAT(import.state.warnings, Contains(HasSubstr("counts 1 prediction layers")));
  EXPECT_TRUE(import.state.args.value.get("mtp_num_layers").is_none());
}

ParallelTarget layout_with(int64_t tensor, int64_t pipeline, int64_t virtual_stages = 1) {
  ParallelTarget layout;
  layout.tensor = tensor;
  layout.pipeline = pipeline;
  if (virtual_stages > 1) layout.virtual_pipeline = virtual_stages;
  return layout;
}

// By the ranks of several layouts.
void expect_back_through_runs(Model& model) {
  const Checkpoint first = model.hugging_face();
  std::vector<ParallelTarget> layouts = {layout_with(1, 1), layout_with(2, 2), layout_with(4, 1),
                                         layout_with(1, 4), layout_with(2, 2, 2)};
  if (model.architecture.norm_modules) {  // whose program has one pipeline stage alone
    layouts = {layout_with(1, 1), layout_with(2, 1)};
  }
  if (model.architecture.index_every > 1) {  // stages begin with a layer that has an indexer
    for (const size_t i : {1, 3, 4}) {
      layouts[i] = layout_with(*layouts[i].tensor, 2);
      layouts[i].first_stage_layers = 3;
    }
  }
  if (model.architecture.experts > 0) {
    for (const size_t i : {1, 3}) layouts[i].expert = 2;
    layouts[2].expert = 4;
    layouts[2].expert_tensor = 1;
  }
  for (size_t i = 0; i < layouts.size(); ++i) {
    ImportOptions options;
    options.layout = layouts[i];
    const Import import = import_model(first, options);
    for (const bool legacy : {false, true}) {
      // Rank folders have no place for experts that are split otherwise than all else.
      if (legacy && layouts[i].expert_tensor) continue;
      SCOPED_TRACE(testing::Message() << "layout " << i << (legacy ? " torch" : " torch_dist"));
      const std::string run = "run" + std::to_string(2 * i + (legacy ? 1 : 0));
      test::expect_back_through_run(first, import, legacy, model.files, run);
    }
  }
}

TEST_P(Models, ComeBackThroughRunsAtSeveralLayouts) {
  Model model(GetParam());
  expect_back_through_runs(model);
}

TEST(Import, PredictionLayersComeBackThroughRuns) {
  for (const char* family : {"deepseek_v3", "qwen3_next", "qwen3_5_text"}) {
    Model model(family, {{"mtp_num_layers", 1}});
    expect_back_through_runs(model);
  }
  Model hybrid("nemotron_h_latent",
               {{"mtp_num_layers", 2}, {"hybrid_layer_pattern", "ME*E/*E/*E"}});
  expect_back_through_runs(hybrid);
}

TEST(Import, WhatTheTwoSidesComputeOtherwiseIsReported) {
  Model model("deepseek_v2_plain_queries");
  EXPECT_THAT(import_model(model.hugging_face(), {}).state.warnings,
              Contains(HasSubstr("ranks groups of experts by the sum of their 2 best scores")));
  Model scaled("llama_tied_wide_heads", {{"rope_scaling_factor", 32.0}});
  EXPECT_THAT(import_model(scaled.hugging_face(), {}).state.warnings,
              Contains(HasSubstr("does not hand --rope-scaling-factor on")));
  Model linear("llama_biases");
  EXPECT_THAT(import_model(linear.hugging_face(), {}).state.warnings,
              Contains(HasSubstr("--rotary-seq-len-interpolation-factor")));
  Model plain("llama_tied_wide_heads");
  EXPECT_THAT(import_model(plain.hugging_face(), {}).state.warnings,
              testing::Not(Contains(HasSubstr("does not hand"))));
  Model apertus("apertus");
  EXPECT_THAT(import_model(apertus.hugging_face(), {}).state.warnings,
              Contains(HasSubstr("softplus")));
}

const StateTensor& tensor_of(const Import& import, const std::string& name) {
  for (const StateTensor& tensor : import.state.tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("no " + name);
}

// The norm of a delta net is stored less 1 by Megatron-LM, which integers cannot be.
TEST(Import, NormsOfIntegersAreRefused) {
  File file("qwen3_next");
  Bytes& norm = file.tensors.at("model.layers.0.linear_attn.norm.weight");
  norm.dtype = DType::i32;
  norm.data.assign(static_cast<size_t>(norm.shape[0]) * 4, '\0');
  EXPECT_THAT(file.failure(ErrorKind::mismatch), HasSubstr("the weight of a norm"));
}

TEST(Import, VocabularyIsPaddedForTheTensorRanks) {
  Model model("llama");
  const Checkpoint checkpoint = model.hugging_face();
  ImportOptions options;
  options.layout.tensor = 2;
  const Import import = import_model(checkpoint, options);
  EXPECT_EQ(tensor_of(import, "output_layer.weight").shape, (Dims{256, 32}));
  EXPECT_EQ(import.state.args.value.get("padded_vocab_size").integer(), 256);
  EXPECT_EQ(import.state.args.value.get("vocab_size").integer(), 250);
  options.make_vocab_size_divisible_by = 1;
  EXPECT_EQ(tensor_of(import_model(checkpoint, options), "output_layer.weight").shape[0], 250);
  options.make_vocab_size_divisible_by = 100;
  EXPECT_EQ(tensor_of(import_model(checkpoint, options), "output_layer.weight").shape[0], 400);
}

TEST(Import, DtypeCastsAllButTheIslands) {
  Model model("deepseek_v3");
  const Checkpoint checkpoint = model.hugging_face();
  ImportOptions options;
  options.dtype = DType::bf16;
  const Import import = import_model(checkpoint, options);
  EXPECT_EQ(tensor_of(import, "output_layer.weight").dtype, DType::bf16);
  EXPECT_EQ(tensor_of(import, "decoder.layers.1.mlp.router.expert_bias").dtype, DType::f32);
  EXPECT_EQ(import.state.args.value.get("bf16").boolean(), true);
  EXPECT_EQ(import.state.args.value.get("params_dtype").text(), "torch.bfloat16");
  EXPECT_THAT(import.flags, Contains("--bf16"));
}

TEST(Import, FlagsSayWhatCheckpointArgsLeaveOut) {
  Model qwen("qwen3");
  const Import qwen3 = import_model(qwen.hugging_face(), {});
  EXPECT_THAT(qwen3.flags, testing::ElementsAre("--qk-layernorm"));
  Model windows("qwen2_windows");
  EXPECT_THAT(import_model(windows.hugging_face(), {}).flags,
              testing::IsSupersetOf({"--window-size 31,0", "--window-attn-skip-freq [0,0,1,1]"}));
  Model deepseek("deepseek_v2_plain_queries");
  EXPECT_THAT(import_model(deepseek.hugging_face(), {}).flags,
              testing::IsSupersetOf({"--multi-latent-attention", "--kv-lora-rank 16",
                                     "--rotary-scaling-factor 40", "--mscale-all-dim 1",
                                     "--moe-router-num-groups 2"}));
}

TEST(Import, LayoutsThatDoNotFitAreRefused) {
  Model model("llama");
  const Checkpoint checkpoint = model.hugging_face();
  ImportOptions options;
  options.layout.tensor = 3;
  EXPECT_THROW(import_model(checkpoint, options), Error);
  options.layout.tensor = 1;
  options.layout.pipeline = 3;
  EXPECT_THROW(import_model(checkpoint, options), Error);
  options.layout.pipeline = 1;
  options.layout.expert = 2;
  EXPECT_THROW(import_model(checkpoint, options), Error);
}

// Megatron's arguments name no type.
TEST(Import, SaysWhenItsResultIsTakenForAnotherFamily) {
  const auto is_said =
      Contains(HasSubstr("it is recognised as qwen3_next: "
                         "options.family=qwen3_5_moe_text makes"));
  Model qwen3_5("qwen3_5_moe_text");
  ExportOptions options;
  options.family = "qwen3_5_moe_text";
  const Checkpoint file = test::write_hugging_face(plan_export(qwen3_5.megatron(), options),
                                                   *qwen3_5.files, qwen3_5.files, "own");
  EXPECT_THAT(import_model(file, {}).state.warnings, is_said);
  Model qwen3_next("qwen3_next");
  EXPECT_THAT(import_model(qwen3_next.hugging_face(), {}).state.warnings,
              testing::Not(Contains(HasSubstr("it is recognised as"))));
}

// A model of embeddings, rewards or values: what Megatron-LM has no place for, and what to do.
TEST(Import, HeadsOfOtherKindsHaveANextStep) {
  test::File file("qwen3");
  const test::Bytes norm = file.tensors.at("model.norm.weight");
  file.tensors["v_head.summary.weight"] = norm;
  const std::string value = file.failure(ErrorKind::mismatch);
  EXPECT_THAT(value, HasSubstr("options.drop_unknown leaves it out"));
  EXPECT_THAT(value, Not(HasSubstr("tie_word_embeddings")));
  file.config["tie_word_embeddings"] = false;
  file.tensors.erase("lm_head.weight");
  const std::string both = file.failure(ErrorKind::mismatch);
  EXPECT_THAT(both, HasSubstr("options.drop_unknown leaves it out"));
  EXPECT_THAT(both, HasSubstr("whose tie_word_embeddings is true (options.config_folder=DIR)"));
  file.config["tie_word_embeddings"] = true;
  ImportOptions options;
  options.drop_unknown = true;
  EXPECT_FALSE(file.import(options).empty());
  file.tensors.erase("model.norm.weight");  // no head is what is missing
  EXPECT_THAT(file.failure(ErrorKind::mismatch), Not(HasSubstr("options.drop_unknown")));
}

}  // namespace
}  // namespace ferry
