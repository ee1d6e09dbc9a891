// Runs whose rows of gate and up alternate in blocks: what makes them so, and which layouts keep
// the order in which they were saved.
#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "tests/megatron/reshard_support.h"

namespace ferry {
namespace {

using testing::HasSubstr;

using Settings = std::vector<std::pair<std::string, int64_t>>;

LoadedValue with(const Value& args, const Settings& numbers, const Settings& flags) {
  Draft draft;
  const Value copy = args.document() ? draft.copy(args) : draft.instance("argparse.Namespace");
  for (const auto& [name, number] : numbers) draft.put(copy, name, draft.integer(number));
  for (const auto& [name, flag] : flags) draft.put(copy, name, draft.boolean(flag != 0));
  return std::move(draft).finish(copy);
}

GluBlocks blocks(const Settings& numbers, const Settings& flags) {
  return read_glu_blocks(with({}, numbers, flags).value);
}

TEST(AlternatingRows, AreThoseOfModulesThatUseTheSetting) {
  const Settings both = {{"moe_mlp_glu_interleave_size", 32},
                         {"moe_shared_expert_glu_interleave_size", 16}};
  const GluBlocks set = blocks(both, {{"swiglu", 1}});
  EXPECT_EQ(set.experts, 32);
  EXPECT_EQ(set.shared, 16);
  EXPECT_EQ(set.dense, 0);
  // Experts one by one, and shared ones without grouped kernels, know nothing of it.
  const GluBlocks off = blocks(
      both, {{"swiglu", 1}, {"moe_grouped_gemm", 0}, {"use_grouped_gemm_for_shared_expert", 0}});
  EXPECT_EQ(off.experts, 0);
  EXPECT_EQ(off.shared, 0);
  EXPECT_EQ(blocks(both, {}).experts, 0);  // there is no gate
  // Those of a dense MLP are fixed.
  const Settings grouped = {{"swiglu", 1}, {"use_grouped_gemm_for_dense_mlp", 1}};
  EXPECT_EQ(blocks({}, grouped).dense, 0);
  Settings fused = grouped;
  fused.emplace_back("use_transformer_engine_op_fuser", 1);
  EXPECT_EQ(blocks({}, fused).dense, 32);
  EXPECT_THROW(blocks({{"moe_mlp_glu_interleave_size", 0}}, {{"swiglu", 1}}), Error);
}

ParallelTarget layout(int64_t tensor, int64_t expert, int64_t expert_tensor) {
  ParallelTarget target;
  target.tensor = tensor;
  target.pipeline = 1;
  target.expert = expert;
  target.expert_tensor = expert_tensor;
  return target;
}

// What a reshard of a mixture of experts says; empty when it keeps every tensor.
std::string refusal(const Settings& numbers, const Settings& flags, const ParallelTarget& target) {
  const std::string name = "qwen3moe_te_ep2pp2_dpr";
  const auto memory = std::make_shared<MemoryFileSystem>();
  const Checkpoint source = open_checkpoint(posix_file_system(), test::fixture("megatron/" + name));
  RunState state = state_of(source);
  state.args = with(state.args.value, numbers, flags);
  try {
    retarget(state, target);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    return error.what();
  }
  test::write(plan_torch_dist(std::move(state), {}), memory, "iter_0000005");
  const Checkpoint written = open_checkpoint(memory, "iter_0000005");
  test::expect_truth(written, name);
  for (const auto& [setting, number] : numbers) {
    EXPECT_EQ(written.args.value.get(setting).integer(), number);
  }
  return {};
}

TEST(AlternatingRows, AreKeptOnTheTensorRanksThatSavedThem) {
  const Settings experts = {{"moe_mlp_glu_interleave_size", 8}};
  const Settings grouped = {{"moe_grouped_gemm", 1}};
  EXPECT_EQ(refusal(experts, grouped, layout(2, 4, 1)), "");
  EXPECT_THAT(
      refusal(experts, grouped, layout(2, 2, 2)),
      AllOf(HasSubstr("moe_mlp_glu_interleave_size"), HasSubstr("keep options.expert_tensor=1")));
  EXPECT_EQ(refusal(experts, {{"moe_grouped_gemm", 0}}, layout(2, 2, 2)), "");
  const Settings shared = {{"moe_shared_expert_glu_interleave_size", 8}};
  const Settings grouped_shared = {{"use_grouped_gemm_for_shared_expert", 1}};
  EXPECT_EQ(refusal(shared, grouped_shared, layout(1, 2, 2)), "");
  EXPECT_THAT(refusal(shared, grouped_shared, layout(2, 4, 1)), HasSubstr("keep options.tensor=1"));
  const Settings dense = {{"use_grouped_gemm_for_dense_mlp", 1},
                          {"use_transformer_engine_op_fuser", 1}};
  EXPECT_THAT(refusal({}, dense, layout(2, 4, 1)), HasSubstr("keep options.tensor=1"));
}

}  // namespace
}  // namespace ferry
