// Parameter groups wherever a layout keeps them, and for other expert layouts.
#include "ckpt/megatron/optimizer/param_groups.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ckpt/checkpoint.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/megatron/state_of.h"
#include "tests/io/memory_file_system.h"
#include "tests/support.h"

namespace ferry {
namespace {

// {'param_groups': [{'lr': 0.5, 'wd_mult': factor, 'params': [0, 1]} ...]}
Value inner_state(Draft& draft, const std::vector<double>& factors) {
  const Value groups = draft.list();
  for (const double factor : factors) {
    const Value group = draft.dict();
    draft.put(group, "lr", draft.real(0.5));
    draft.put(group, "wd_mult", draft.real(factor));
    draft.put(group, "params", draft.list({draft.integer(0), draft.integer(1)}));
    draft.append(groups, group);
  }
  const Value state = draft.dict();
  draft.put(state, "param_groups", groups);
  return state;
}

Value wrapped(Draft& draft, const Value& inner) {
  const Value state = draft.dict();
  draft.put(state, "optimizer", inner);
  return state;
}

// As the object of a file that holds nothing else.
OptimizerGroups read(Draft& draft, const Value& root) {
  const auto files = std::make_shared<MemoryFileSystem>();
  const std::string archive = write_torch_archive(std::move(draft).finish(root).value);
  files->put("file", archive);
  Catalog catalog;
  catalog.file_system = files;
  Object object{"optimizer", {}, {}};
  object.extent.file = catalog.add_file("file", archive.size());
  object.extent.length = archive.size();
  return read_param_groups(catalog, &object);
}

TEST(ParamGroups, AreFoundInEveryForm) {
  Draft plain;
  const OptimizerGroups one = read(plain, inner_state(plain, {1, 0}));
  ASSERT_EQ(one.param_groups.size(), 1);
  EXPECT_EQ(one.param_groups[0].value.size(), 2);
  EXPECT_FALSE(one.param_groups[0].value[0].has("params"));
  EXPECT_EQ(one.param_groups[0].value[1].get("wd_mult").real(), 0);

  Draft numbered;  // {1: experts, 0: dense}
  const Value both = numbered.dict();
  numbered.put(both, numbered.integer(1), wrapped(numbered, inner_state(numbered, {1})));
  numbered.put(both, numbered.integer(0), wrapped(numbered, inner_state(numbered, {1, 0})));
  const OptimizerGroups two = read(numbered, both);
  ASSERT_EQ(two.param_groups.size(), 2);
  EXPECT_EQ(two.param_groups[0].value.size(), 2);
  EXPECT_EQ(two.param_groups[1].value.size(), 1);

  Draft listed;
  const Value list = listed.list(
      {wrapped(listed, inner_state(listed, {1})), wrapped(listed, inner_state(listed, {1, 0}))});
  EXPECT_EQ(read(listed, list).param_groups.size(), 2);
  EXPECT_TRUE(read_param_groups(Catalog(), nullptr).param_groups.empty());
}

TEST(ParamGroups, TakeTheStepThatAllParametersShare) {
  Draft draft;
  const Value inner = inner_state(draft, {1});
  const Value states = draft.dict();
  draft.put(states, "common_step", draft.integer(9));
  draft.put(inner, "state", states);
  const Value root = wrapped(draft, inner);
  const Value scaler = draft.dict();
  draft.put(root, "grad_scaler", scaler);
  const OptimizerGroups groups = read(draft, root);
  EXPECT_EQ(groups.param_groups[0].value[0].get("step").integer(), 9);
  EXPECT_EQ(groups.grad_scaler.value.kind(), ValueKind::dict);
}

TEST(ParamGroups, HoldTheElementsOfTheirTensorsAndNoOthers) {
  Draft draft;
  const Value inner = inner_state(draft, {1});
  const Value states = draft.dict();
  draft.put(states, "common_step", draft.tensor(DType::f32, {}, "step"));
  draft.put(states, "exp_avg", draft.tensor(DType::f32, {2}, "not this"));
  draft.put(inner, "state", states);
  const Value root = wrapped(draft, inner);
  const Value scaler = draft.dict();
  draft.put(scaler, "scale", draft.tensor(DType::f32, {1}, "loss"));
  draft.put(root, "grad_scaler", scaler);
  const OptimizerGroups groups = read(draft, root);
  const auto elements = [](const Value& tensor) {
    return tensor.document()->storages.at(tensor.tensor()->storage_key);
  };
  EXPECT_EQ(elements(groups.param_groups[0].value[0].get("step")), "step");
  EXPECT_EQ(elements(groups.grad_scaler.value.get("scale")), "loss");
  for (const auto& [key, bytes] : groups.grad_scaler.document->storages) {
    EXPECT_NE(bytes, "not this");
  }
}

TEST(ParamGroups, AreAdaptedToTheExpertsOptimizer) {
  Draft draft;
  const auto dense = read(draft, inner_state(draft, {1, 0})).param_groups;
  EXPECT_EQ(adapt_param_groups(dense, false, false).size(), 1);
  const auto apart = adapt_param_groups(dense, true, false);
  ASSERT_EQ(apart.size(), 2);
  ASSERT_EQ(apart[1].value.size(), 1);  // no vectors among experts: none without weight decay
  EXPECT_EQ(apart[1].value[0].get("is_expert_parallel").boolean(), true);
  EXPECT_EQ(adapt_param_groups(dense, true, true)[1].value.size(), 2);
  EXPECT_EQ(adapt_param_groups(apart, false, false).size(), 1);
  EXPECT_EQ(to_json(adapt_param_groups(apart, true, false)[1].value), to_json(apart[1].value));
  EXPECT_TRUE(adapt_param_groups({}, true, true).empty());
}

class GroupsOf : public testing::TestWithParam<std::pair<const char*, std::vector<size_t>>> {};

TEST_P(GroupsOf, PeersCheckpoints) {
  const auto& [name, sizes] = GetParam();
  const Checkpoint checkpoint =
      open_checkpoint(posix_file_system(), test::fixture(std::string("megatron/") + name));
  const RunState state = state_of(checkpoint);
  ASSERT_EQ(state.param_groups.size(), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_EQ(state.param_groups[i].value.size(), sizes[i]);
    for (size_t j = 0; j < sizes[i]; ++j) {
      const Value group = state.param_groups[i].value[j];
      EXPECT_EQ(group.get("step").integer(), 5);
      EXPECT_EQ(group.get("max_lr").real(), 0.001);
      EXPECT_FALSE(group.has("params"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Peers, GroupsOf,
                         testing::Values(std::pair{"llama_tp2dp2_dpr", std::vector<size_t>{2}},
                                         std::pair{"qwen3moe_te_ep2pp2_dpr",
                                                   std::vector<size_t>{2, 1}},
                                         std::pair{"swiss_llama_tp2pp2", std::vector<size_t>{2}},
                                         std::pair{"llama_legacy_tp2pp2", std::vector<size_t>{2}},
                                         std::pair{"llama_legacy_tp2_nodo", std::vector<size_t>{2}},
                                         std::pair{"hot_llama", std::vector<size_t>{}}));

}  // namespace
}  // namespace ferry
