// Norms have the names that the modules look for which are to load them. The checkpoints in
// tests/fixtures/core were saved by Megatron Core with its local modules.
#include "ckpt/megatron/state/norm_names.h"

#include <gmock/gmock.h>

#include "ckpt/megatron/rank_folders/model.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "tests/megatron/reshard_support.h"

namespace ferry {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

struct Spelling {
  std::string layer, with_transformer_engine, local;
};

// A layer of each kind; `others` identifies the kind.
const std::vector<std::string_view> kOthers = {
    "decoder.layers.0.self_attention.linear_qkv.weight",
    "decoder.layers.1.self_attention.linear_qkv.weight",
    "decoder.layers.1.mlp.router.weight",
    "decoder.layers.2.self_attention.linear_kv_up_proj.weight",
    "decoder.layers.3.self_attention.linear_kv_up_proj.weight",
    "decoder.layers.3.mlp.router.weight",
    "mtp.layers.0.transformer_layer.self_attention.linear_kv_up_proj.weight",
    "mtp.layers.0.transformer_layer.mlp.router.weight"};
const std::vector<Spelling> kSpellings = {
    {"decoder.layers.0.", "mlp.linear_fc1.layer_norm_weight", "mlp.linear_fc1.layer_norm_weight"},
    {"decoder.layers.1.", "pre_mlp_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"},
    {"decoder.layers.1.", "pre_mlp_layernorm.bias", "mlp.linear_fc1.layer_norm_bias"},
    {"decoder.layers.2.", "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"},
    {"decoder.layers.3.", "pre_mlp_layernorm.weight", "pre_mlp_layernorm.weight"},
    {"decoder.layers.3.", "self_attention.linear_q_up_proj.layer_norm_weight",
     "self_attention.q_layernorm.weight"},
    {"decoder.layers.3.", "self_attention.linear_kv_up_proj.layer_norm_weight",
     "self_attention.kv_layernorm.weight"},
    {"mtp.layers.0.transformer_layer.", "self_attention.linear_kv_up_proj.layer_norm_weight",
     "self_attention.kv_layernorm.weight"},
    {"mtp.layers.0.transformer_layer.", "pre_mlp_layernorm.weight", "pre_mlp_layernorm.weight"},
    // Norms of queries and keys in plain attention are not part of a linear layer.
    {"decoder.layers.0.", "self_attention.q_layernorm.weight", "self_attention.q_layernorm.weight"},
    {"decoder.layers.3.", "input_layernorm.weight", "input_layernorm.weight"}};

TEST(NormNames, AreThoseOfTheModules) {
  const NormNames fused(kOthers, true), local(kOthers, false);
  for (const Spelling& norm : kSpellings) {
    for (const std::string& stored : {norm.with_transformer_engine, norm.local}) {
      EXPECT_EQ(fused.of(norm.layer + stored), norm.layer + norm.with_transformer_engine);
      EXPECT_EQ(local.of(norm.layer + stored), norm.layer + norm.local);
    }
  }
  for (const std::string_view other : kOthers) EXPECT_EQ(local.of(other), other);
  const NormNames stacked({"decoder.layers.mlp.router.weight"}, false);
  EXPECT_EQ(stacked.of("decoder.layers.pre_mlp_layernorm.weight"),
            "decoder.layers.mlp.linear_fc1.layer_norm_weight");
}

std::vector<std::string> norms_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const Entry& entry : checkpoint.catalog->entries) {
    if (entry.name.find("norm") != std::string::npos) names.push_back(entry.name);
  }
  std::ranges::sort(names);
  return names;
}

Checkpoint for_modules(const Checkpoint& checkpoint, bool transformer_engine,
                       const std::shared_ptr<MemoryFileSystem>& memory) {
  RunState state = state_of(checkpoint);
  choose_modules(state, transformer_engine);
  test::write(plan_torch_dist(std::move(state), {}), memory, "made");
  return open_checkpoint(memory, "made");
}

class LocalModules : public testing::TestWithParam<std::string> {
 protected:
  const Checkpoint saved_ =
      open_checkpoint(posix_file_system(), FERRY_FIXTURES "/core/" + GetParam());
};

TEST_P(LocalModules, FindTheirNormsInWhatWasOfTransformerEngine) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint fused = for_modules(saved_, true, memory);
  EXPECT_NE(norms_of(fused), norms_of(saved_));
  EXPECT_EQ(fused.args.value.get("transformer_impl").string(), "transformer_engine");
  const auto again = std::make_shared<MemoryFileSystem>();
  const Checkpoint back = for_modules(fused, false, again);
  EXPECT_EQ(norms_of(back), norms_of(saved_));
  EXPECT_EQ(back.args.value.get("transformer_impl").string(), "local");
}

TEST_P(LocalModules, FindTheirNormsInWhatWasRankFolders) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  RunState state = state_of(saved_);
  choose_modules(state, false);
  test::write(plan_legacy(state, {true}), memory, "folders");
  const Checkpoint folders = open_checkpoint(memory, "folders");
  EXPECT_THAT(norms_of(open_checkpoint(memory, "folders", {{}, true})),
              Not(Contains(HasSubstr("linear_fc1.layer_norm_"))));
  EXPECT_EQ(norms_of(folders), norms_of(saved_));
}

Checkpoint run_of_peers(const std::string& name) {
  return open_checkpoint(posix_file_system(), FERRY_FIXTURES "/megatron/" + name);
}

// The order in which local modules register parameters does not depend on what norms are called.
TEST(NormNames, SayNothingOfTheOrderOfLocalModules) {
  const Checkpoint run = run_of_peers("f32_deepseek");
  const auto order_of = [&](bool transformer_engine) {
    RunState state = state_of(run);
    name_norms(state, transformer_engine);
    const RunArguments arguments = read_run_arguments(state.args.value);
    std::vector<ModelTensor> tensors;
    for (const StateTensor& tensor : state.tensors) {
      if (tensor.role == Role::model) tensors.push_back({tensor.name, tensor.shape, tensor.dtype});
    }
    const ModelLayout layout(std::move(tensors), arguments);
    std::vector<std::string> names;
    for (const auto& parameter : layout.parameters({}, default_modules(arguments))) {
      names.push_back(global_parameter_name(layout, parameter));
    }
    const std::vector<std::string_view> views(names.begin(), names.end());
    const NormNames local(views, false);
    std::vector<std::string> order;
    for (const std::string& name : names) order.push_back(local.of(name));
    return order;
  };
  EXPECT_THAT(order_of(false), Contains("decoder.layers.0.self_attention.kv_layernorm.weight"));
  EXPECT_EQ(order_of(true), order_of(false));
}

// Norms of `run`, made into rank folders: the files' names, then what is read from them.
struct Folders {
  std::vector<std::string> stored, read;
};

Folders folders_of(const Checkpoint& run) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  RunState state = state_of(run);
  name_norms_by_modules(state);
  test::write(plan_legacy(state, {true}), memory, "folders");
  return {norms_of(open_checkpoint(memory, "folders", {{}, true})),
          norms_of(open_checkpoint(memory, "folders"))};
}

// Arguments say "local", names and the order of parameters that it was other modules.
TEST(NormNames, OfFoldersAreThoseOfTheModulesThatTheyShow) {
  const Checkpoint run = run_of_peers("qwen3moe_te_ep2pp2_dpr");
  ASSERT_EQ(run.args.value.get("transformer_impl").string(), "local");
  const Folders folders = folders_of(run);
  EXPECT_THAT(folders.stored, Contains(HasSubstr("linear_qkv.layer_norm_weight")));
  EXPECT_EQ(folders.read, norms_of(run));
}

// Arguments and the order of parameters say "local", names do not.
TEST(NormNames, OfFoldersAreThoseOfLocalModules) {
  for (const char* name : {"f32_deepseek", "f32_qwen3moe"}) {
    const Checkpoint run = run_of_peers(name);
    const Folders folders = folders_of(run);
    EXPECT_THAT(folders.stored, Not(Contains(HasSubstr(".layer_norm_")))) << name;
    RunState local = state_of(run);
    choose_modules(local, false);
    std::vector<std::string> expected;
    for (const StateTensor& tensor : local.tensors) {
      if (tensor.name.find("norm") != std::string::npos) expected.push_back(tensor.name);
    }
    EXPECT_THAT(folders.read, testing::UnorderedElementsAreArray(expected)) << name;
    EXPECT_NE(folders.read, norms_of(run)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Saved, LocalModules,
                         testing::Values("qwen2_moe_mixed", "deepseek_v2_plain_queries",
                                         "deepseek_v3_mtp"),
                         [](const auto& suite) { return suite.param; });

}  // namespace
}  // namespace ferry
