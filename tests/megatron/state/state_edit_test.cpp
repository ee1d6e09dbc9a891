// Tensors left out, renamed or cast; optimizer state goes with them.
#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/optimizer/optimizer_form.h"
#include "ckpt/megatron/state/edit.h"

namespace ferry {
namespace {

using testing::ElementsAre;

RunState small_state() {
  RunState state;
  const auto add = [&](const char* name, DType dtype, Role role) {
    const auto number = static_cast<uint32_t>(state.tensors.size());
    state.tensors.push_back({name, dtype, {2, 3}, {{number}, {copy_all({2, 3})}, {}}, role});
  };
  add("output_layer.weight", DType::bf16, Role::model);
  add("decoder.layers.0.mlp.router.weight", DType::f32, Role::model);
  add("decoder.layers.0.mlp.router.expert_bias", DType::f32, Role::model);
  add("optimizer.state.param.output_layer.weight", DType::f32, Role::optimizer);
  add("optimizer.state.exp_avg.output_layer.weight", DType::f32, Role::optimizer);
  add("optimizer.state.exp_avg.decoder.layers.0.mlp.router.weight", DType::f32, Role::optimizer);
  Draft draft;
  const Value args = draft.instance("argparse.Namespace");
  state.args = std::move(draft).finish(args);
  return state;
}

std::vector<std::string> names(const RunState& state) {
  std::vector<std::string> all;
  for (const StateTensor& tensor : state.tensors) all.push_back(tensor.name);
  return all;
}

TEST(StateEdit, FindsTheTensorThatOptimizerStateBelongsTo) {
  EXPECT_EQ(model_name("optimizer.state.exp_avg_sq.output_layer.weight"), "output_layer.weight");
  EXPECT_EQ(model_name("output_layer.weight"), "output_layer.weight");
  EXPECT_EQ(model_name("optimizer.state.step"), "optimizer.state.step");
}

TEST(StateEdit, KeepsAndDropsTensorsWithTheirState) {
  RunState state = small_state();
  keep_tensors(state, [](std::string_view name) { return name == "output_layer.weight"; });
  EXPECT_THAT(names(state),
              ElementsAre("output_layer.weight", "optimizer.state.param.output_layer.weight",
                          "optimizer.state.exp_avg.output_layer.weight"));
  EXPECT_EQ(state.dropped.size(), 3);
  EXPECT_EQ(state.dropped[0].elements, 6);
  drop_tensors(state, [](std::string_view name) { return name.starts_with("optimizer."); });
  EXPECT_THAT(names(state), ElementsAre("output_layer.weight"));
  EXPECT_EQ(state.dropped.size(), 5);
}

TEST(StateEdit, DropsTheOptimizer) {
  RunState state = small_state();
  state.param_groups.resize(1);
  drop_optimizer(state);
  EXPECT_EQ(state.tensors.size(), 3);
  EXPECT_TRUE(state.param_groups.empty());
}

TEST(StateEdit, RenamesATensorAndItsState) {
  RunState state = small_state();
  rename_tensors(state, [](std::string_view name) {
    return name == "output_layer.weight" ? "head.weight" : std::string(name);
  });
  EXPECT_EQ(state.tensors[0].name, "head.weight");
  EXPECT_EQ(state.tensors[4].name, "optimizer.state.exp_avg.head.weight");
  EXPECT_THROW(rename_tensors(state, [](std::string_view) { return std::string("x"); }), Error);
}

TEST(StateEdit, CastsTheModelButNotItsBuffersAndState) {
  RunState state = small_state();
  cast_model(state, DType::f16);
  EXPECT_EQ(state.tensors[0].dtype, DType::f16);
  EXPECT_EQ(state.tensors[1].dtype, DType::f16);
  EXPECT_EQ(state.tensors[2].dtype, DType::f32);
  EXPECT_EQ(state.tensors[3].dtype, DType::f32);
  EXPECT_EQ(state.args.value.get("fp16").boolean(), true);
  EXPECT_EQ(state.args.value.get("bf16").boolean(), false);
  EXPECT_THROW(cast_model(state, DType::i32), Error);
}

TEST(OptimizerForm, MakesMastersOfTheModelWhereThereAreNone) {
  RunState state = small_state();
  add_masters(state);
  ASSERT_EQ(state.tensors.size(), 7);
  const StateTensor& master = state.tensors.back();
  EXPECT_EQ(master.name, "optimizer.state.param.decoder.layers.0.mlp.router.weight");
  EXPECT_EQ(master.recipe.inputs, std::vector<uint32_t>{1});
  EXPECT_EQ(master.role, Role::optimizer);
  ASSERT_EQ(state.dropped.size(), 1);
  EXPECT_EQ(state.dropped[0].elements, -6);
  drop_doubled_masters(state);  // the router's model tensor is fp32 itself
  EXPECT_EQ(state.tensors.size(), 6);
  EXPECT_EQ(state.dropped[1].elements, 6);
}

}  // namespace
}  // namespace ferry
