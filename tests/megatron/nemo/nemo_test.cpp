// NeMo 2 folders. The fixture is put together from NeMo's own parts (tests/interop/fixtures/
// make_nemo_fixture.py) around the weights of hot_llama, so it must read as hot_llama does.
#include "ckpt/megatron/nemo/nemo.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/megatron/config/nemo_config.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/torch_dist/torch_dist.h"
#include "tests/io/memory_file_system.h"
#include "tests/support.h"

namespace ferry {
namespace {

using testing::HasSubstr;

const std::string kFixture = test::fixture("nemo");

TEST(Nemo, HoldsTheTensorsOfTheMegatronCheckpoint) {
  const Checkpoint nemo = open_checkpoint(posix_file_system(), kFixture);
  EXPECT_EQ(nemo.format, Format::nemo);
  EXPECT_THAT(nemo.writer, HasSubstr("NeMo 2"));
  EXPECT_EQ(nemo.iteration, 5);
  size_t model_entries = 0;
  const auto truth = test::truth_of("hot_llama");
  for (const Entry& entry : nemo.catalog->entries) {
    if (entry.role == Role::optimizer) continue;
    ++model_entries;
    ASSERT_TRUE(truth.contains(entry.name)) << entry.name;
    EXPECT_EQ(test::hash_of(read_tensor(nemo.catalog, entry, 1 << 20)),
              truth[entry.name]["xxh3_128"].get<std::string>())
        << entry.name;
  }
  EXPECT_EQ(model_entries, truth.size());
}

TEST(Nemo, ItsWeightsFolderIsTheSameCheckpoint) {
  const Checkpoint nemo = open_checkpoint(posix_file_system(), kFixture + "/weights");
  EXPECT_EQ(nemo.format, Format::nemo);
  EXPECT_EQ(nemo.path, kFixture);
}

TEST(Nemo, OptimizerEntriesLoseThePrefixInTheirMiddle) {
  const Checkpoint nemo = open_nemo(posix_file_system(), kFixture);
  for (const char* part : {"param", "exp_avg", "exp_avg_sq"}) {
    const std::string name = fmt::format("optimizer.state.{}.decoder.final_layernorm.weight", part);
    const Entry* entry = nemo.catalog->find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->role, Role::optimizer);
  }
}

TEST(Nemo, RawKeepsThePrefix) {
  const Checkpoint raw = open_nemo(posix_file_system(), kFixture, true);
  EXPECT_NE(raw.catalog->find("module.decoder.final_layernorm.weight"), nullptr);
  EXPECT_NE(raw.catalog->find("optimizer.state.exp_avg.module.decoder.final_layernorm.weight"),
            nullptr);
}

TEST(Nemo, ConfigurationReadsAsMegatronArguments) {
  const Checkpoint nemo = open_nemo(posix_file_system(), kFixture);
  const Value args = nemo.args.value;
  const Checkpoint megatron =
      open_torch_dist(posix_file_system(), test::fixture("megatron/hot_llama/iter_0000005"));
  EXPECT_EQ(args.text(), "nemo.collections.llm.gpt.model.llama.Llama3Config");
  for (const char* name : {"num_layers",
                           "hidden_size",
                           "ffn_hidden_size",
                           "num_attention_heads",
                           "num_query_groups",
                           "kv_channels",
                           "max_position_embeddings",
                           "rotary_base",
                           "vocab_size",
                           "make_vocab_size_divisible_by",
                           "swiglu",
                           "add_bias_linear",
                           "add_qkv_bias",
                           "untie_embeddings_and_output_weights",
                           "group_query_attention",
                           "qk_layernorm",
                           "multi_latent_attention",
                           "bf16",
                           "squared_relu",
                           "openai_gelu"}) {
    EXPECT_EQ(args.get(name).integer(), megatron.args.value.get(name).integer()) << name;
    EXPECT_TRUE(args.get(name).integer()) << name;
  }
  EXPECT_EQ(args.get("layernorm_epsilon").real(), 1e-5);
  EXPECT_EQ(args.get("normalization").string(), "RMSNorm");
  EXPECT_EQ(args.get("position_embedding_type").string(), "rope");
  EXPECT_EQ(args.get("params_dtype").text(), "torch.bfloat16");
  EXPECT_TRUE(args.has("num_experts"));
  EXPECT_FALSE(args.get("num_experts"));
}

TEST(Nemo, LayoutIsTheStrategysNotTheModels) {
  const Checkpoint nemo = open_nemo(posix_file_system(), kFixture);
  EXPECT_EQ(nemo.layout.tensor, 2);
  EXPECT_EQ(nemo.layout.pipeline, 1);
  EXPECT_EQ(nemo.layout.world_size, 4);
  EXPECT_EQ(nemo.layout.data, 2);
  EXPECT_EQ(nemo.args.value.get("tensor_model_parallel_size").integer(), 2);
}

TEST(Nemo, StrategyWrittenUnderItsOwnType) {
  const auto layout = layout_from_nemo_io(R"json({"objects": {"s": {
      "type": {"type": "pyref", "module": "nemo.lightning", "name": "MegatronStrategy"},
      "items": [["Attr(name='pipeline_model_parallel_size')", {"type": "leaf", "value": 4}],
                ["Attr(name='virtual_pipeline_model_parallel_size')", {"type": "leaf", "value": 2}],
                ["Attr(name='expert_model_parallel_size')", {"type": "leaf", "value": -1}]]}}})json");
  EXPECT_EQ(layout.tensor, 1);
  EXPECT_EQ(layout.pipeline, 4);
  EXPECT_EQ(layout.virtual_pipeline, 2);
  EXPECT_EQ(layout.expert, 1);
  for (const char* text : {"", "{", "[]", "{\"objects\": 5}", "{\"objects\": {\"a\": 5}}",
                           R"({"objects": {"a": {"type": 5, "items": [5, [1, 2, 3], ["x"]]}}})"}) {
    EXPECT_EQ(layout_from_nemo_io(text).tensor, 0) << text;
  }
  std::string sizes;
  for (const char* name : {"tensor_model", "pipeline_model", "context"}) {
    sizes += fmt::format(R"json({}["Attr(name='{}_parallel_size')", {{"value": 2147483647}}])json",
                         sizes.empty() ? "" : ", ", name);
  }
  const std::string strategy = R"({"objects": {"s": {"type": {"name": "MegatronStrategy"},)";
  EXPECT_EQ(layout_from_nemo_io(strategy + R"("items": [)" + sizes + "]}}}").data, 0);
}

class NemoFolder : public testing::Test {
 protected:
  NemoFolder() { test::copy_tree(kFixture, *memory_, "run/ckpt"); }
  Checkpoint open() { return open_checkpoint(memory_, "run/ckpt"); }
  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(NemoFolder, UnfinishedMarkerIsNextToIt) {
  EXPECT_EQ(open().format, Format::nemo);
  memory_->put("run/ckpt-unfinished", "");
  try {
    open_checkpoint(memory_, "run/ckpt/");
    ADD_FAILURE() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
    EXPECT_THAT(error.what(), HasSubstr("run/ckpt-unfinished"));
  }
}

TEST_F(NemoFolder, ContextMayBeMissing) {
  memory_->remove_all("run/ckpt/context");
  const Checkpoint nemo = open();
  EXPECT_EQ(nemo.format, Format::nemo);
  EXPECT_FALSE(nemo.args.value);
  EXPECT_THAT(nemo.notes, testing::Contains(HasSubstr("no model configuration")));
  EXPECT_EQ(nemo.layout.world_size, 1);
}

// A torch_dist checkpoint without arguments, with the configuration that Megatron Bridge puts
// there.
class BridgeFolder : public testing::Test {
 protected:
  BridgeFolder() { test::copy_tree(kFixture + "/weights", *memory_, "run/iter_0000005"); }
  Checkpoint open(const std::string& config) {
    memory_->put("run/iter_0000005/run_config.yaml", config);
    return open_checkpoint(memory_, "run");
  }
  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(BridgeFolder, RunConfigReadsAsArguments) {
  // The provider's fields are those of NeMo's configuration, under "model".
  std::string config = read_file(*posix_file_system(), kFixture + "/context/model.yaml", 1 << 20);
  config = config.substr(config.find("config:\n") + 7);
  const Checkpoint bridge =
      open("checkpoint:\n  save_interval: 5\nmodel:" + config + "\ntrain:\n  train_iters: 5\n");
  EXPECT_EQ(bridge.format, Format::torch_dist);
  EXPECT_THAT(bridge.writer, testing::StartsWith("Megatron Bridge (Megatron Core"));
  const Checkpoint nemo = open_nemo(posix_file_system(), kFixture);
  for (const char* name : {"num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads",
                           "vocab_size", "swiglu", "max_position_embeddings", "rotary_base",
                           "untie_embeddings_and_output_weights"}) {
    EXPECT_TRUE(bridge.args.value.get(name).integer()) << name;
    EXPECT_EQ(bridge.args.value.get(name).integer(), nemo.args.value.get(name).integer()) << name;
  }
  EXPECT_EQ(bridge.layout.world_size, 1);  // by its files
}

TEST_F(BridgeFolder, TransformerFieldsMayLieInAPartOfTheirOwn) {
  const Checkpoint bridge = open(R"(model:
  _target_: megatron.bridge.models.gpt.model_config.BridgeGPTModelConfig
  rope_scaling: true
  rope_scaling_factor: 8.0
  seq_length: 4096
  share_embeddings_and_output_weights: false
  transformer:
    _target_: megatron.core.transformer.transformer_config.TransformerConfig
    activation_func: silu
    gated_linear_unit: true
    hidden_size: 64
    num_attention_heads: 8
    num_moe_experts: 4
    tensor_model_parallel_size: 1
  vocab_size: 1000
)");
  const Value args = bridge.args.value;
  EXPECT_EQ(args.get("swiglu").boolean(), true);
  EXPECT_EQ(args.get("hidden_size").integer(), 64);
  EXPECT_EQ(args.get("kv_channels").integer(), 8);
  EXPECT_EQ(args.get("num_experts").integer(), 4);
  EXPECT_EQ(args.get("vocab_size").integer(), 1000);
  EXPECT_EQ(args.get("max_position_embeddings").integer(), 4096);
  EXPECT_EQ(args.get("use_rope_scaling").boolean(), true);
  EXPECT_EQ(args.get("rope_scaling_factor").real(), 8);
  EXPECT_EQ(args.get("untie_embeddings_and_output_weights").boolean(), true);
  EXPECT_EQ(bridge.layout.tensor, 1);
}

// What fused kernels want in memory Megatron Bridge undoes as it saves the model, and only there.
TEST_F(BridgeFolder, RowsOfGateAndUpDoNotAlternateInFiles) {
  std::string config = read_file(*posix_file_system(), kFixture + "/context/model.yaml", 1 << 20);
  config = "model:" + config.substr(config.find("config:\n") + 7);
  const Checkpoint plain = open(config);
  EXPECT_EQ(plain.optimizer_problem, "");
  const bool has_optimizer =
      std::any_of(plain.catalog->entries.begin(), plain.catalog->entries.end(),
                  [](const Entry& entry) { return entry.role == Role::optimizer; });
  const size_t at = config.find("  hidden_size:");
  ASSERT_NE(at, std::string::npos);
  config.insert(at, "  moe_mlp_glu_interleave_size: 32\n");
  const std::string off = "moe_grouped_gemm: false";
  config.replace(config.find(off), off.size(), "moe_grouped_gemm: true");
  const Checkpoint bridge = open(config);
  EXPECT_TRUE(bridge.args.value.get("moe_mlp_glu_interleave_size").is_none());
  EXPECT_EQ(read_run_arguments(bridge.args.value).glu_blocks.experts, 0);
  EXPECT_THAT(bridge.notes,
              testing::Contains(HasSubstr("follow one another, as Megatron Bridge saves")));
  ASSERT_TRUE(has_optimizer);
  EXPECT_THAT(bridge.optimizer_problem, HasSubstr("moe_mlp_glu_interleave_size 32"));
  EXPECT_TRUE(bridge.optimizer_unsupported);
  for (const Entry& entry : bridge.catalog->entries) EXPECT_EQ(entry.role, Role::model);
}

TEST_F(BridgeFolder, WhatCannotBeReadIsANote) {
  EXPECT_THAT(open("model:\n    a: 1\n  b: 2\n").notes,
              testing::Contains(HasSubstr("cannot be read")));
  EXPECT_THAT(open("train:\n  a: 1\n").notes,
              testing::Contains(HasSubstr("no model configuration")));
}

TEST_F(NemoFolder, RopeScalingTiesAndExperts) {
  memory_->put("run/ckpt/context/model.yaml", R"(config:
  _target_: x.Llama31Config
  activation_func:
    _target_: torch.nn.functional.silu
  gated_linear_unit: true
  hidden_size: 64
  kv_channels: null
  moe_layer_freq:
  - 0
  - 1
  num_attention_heads: 8
  num_moe_experts: 16
  num_query_groups: null
  scale_factor: 32.0
  share_embeddings_and_output_weights: true
)");
  const Checkpoint nemo = open();
  const Value args = nemo.args.value;
  EXPECT_EQ(args.get("use_rope_scaling").boolean(), true);
  EXPECT_EQ(args.get("rope_scaling_factor").real(), 32);
  EXPECT_EQ(args.get("untie_embeddings_and_output_weights").boolean(), false);
  EXPECT_EQ(args.get("num_experts").integer(), 16);
  EXPECT_EQ(args.get("kv_channels").integer(), 8);
  EXPECT_EQ(args.get("num_query_groups").integer(), 8);
  EXPECT_EQ(args.get("ffn_hidden_size").integer(), 256);
  EXPECT_EQ(args.get("moe_layer_freq")[1].integer(), 1);
}

}  // namespace
}  // namespace ferry
