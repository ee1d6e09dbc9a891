// Random models, layouts and optimizer forms: there and back is the identity.
//
// FERRY_PROPERTY_CASES=5000 asks for more cases than the usual ones, FERRY_PROPERTY_SEED=n for
// others.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/megatron/legacy/write/legacy_writer.h"
#include "ckpt/megatron/optimizer/optimizer_form.h"
#include "tests/megatron/reshard_support.h"
#include "tests/megatron/small_run.h"

namespace ferry {
namespace {

using test::SmallRun;

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string text_of(const ParallelTarget& target) {
  std::string text;
  const auto add = [&](const char* name, const std::optional<int64_t>& number) {
    if (number) text += fmt::format(" {}{}", name, *number);
  };
  add("TP", target.tensor), add("PP", target.pipeline), add("VPP", target.virtual_pipeline);
  add("EP", target.expert), add("ETP", target.expert_tensor), add("DP", target.data);
  add("CP", target.context), add("first", target.first_stage_layers);
  return text;
}

// A layout that fits the model.
ParallelTarget fitting_layout(SmallRun& run, const LoadedValue& args) {
  for (;;) {
    ParallelTarget target = run.random_layout();
    try {
      apply_target(args, target);
      return target;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid) << error.what();
    }
  }
}

// Everything that the source has, byte for byte; rows of padding aside, which are zero.
void expect_source(const Checkpoint& checkpoint, const SmallRun& run) {
  ASSERT_EQ(checkpoint.catalog.entries.size(), run.source().entries.size());
  for (const Entry& expected : run.source().entries) {
    const Entry* entry = checkpoint.catalog.find(expected.name);
    ASSERT_NE(entry, nullptr) << expected.name;
    ASSERT_EQ(entry->dtype, expected.dtype) << expected.name;
    std::string found = read_tensor(checkpoint.catalog, *entry, 1 << 24);
    std::string wanted = read_tensor(run.source(), expected, 1 << 24);
    const size_t size = std::max(found.size(), wanted.size());
    found.resize(size);
    wanted.resize(size);
    ASSERT_TRUE(found == wanted) << expected.name;
  }
}

using Memory = std::shared_ptr<MemoryFileSystem>;

TorchDistOptions random_options(test::Random& random) {
  TorchDistOptions options;
  options.files_per_rank = test::chance(random, 20) ? 2 : 1;
  if (test::chance(random, 25)) options.release = parse_core_release("0.16");
  if (test::chance(random, 20)) options.optimizer = ShardedOptimizer::plain;
  if (test::chance(random, 40)) options.optimizer = ShardedOptimizer::dp_reshardable;
  return options;
}

// The checkpoint at another layout, in a format and form of the optimizer that chance decides.
Checkpoint hop(const Checkpoint& checkpoint, const ParallelTarget& target, const Memory& memory,
               test::Random& random) {
  RunState state = state_of(checkpoint);
  retarget(state, target);
  if (test::chance(random, 25)) {
    set_distributed_optimizer(state, test::chance(random, 60));
    if (!has_distributed_optimizer(state)) drop_doubled_masters(state);
    try {
      test::write(plan_legacy(state, {}), memory, "second");
      return open_checkpoint(memory, "second");
    } catch (const Error& error) {  // experts split otherwise than all else
      EXPECT_EQ(error.kind(), ErrorKind::unsupported) << error.what();
    }
  }
  test::write(plan_torch_dist(std::move(state), random_options(random)), memory, "second");
  return open_checkpoint(memory, "second");
}

// False when small shapes leave open in which order flat buckets hold their parameters: readers
// then leave the optimizer's state out.
bool there_and_back(uint64_t seed) {
  SmallRun run(seed);
  const auto memory = std::make_shared<MemoryFileSystem>();
  RunState state = run.state();
  const ParallelTarget first = fitting_layout(run, state.args);
  const ParallelTarget second = fitting_layout(run, state.args);
  SCOPED_TRACE(fmt::format("seed {}:{} ->{}", seed, text_of(first), text_of(second)));
  retarget(state, first);
  test::write(plan_torch_dist(std::move(state), {}), memory, "first");
  const Checkpoint a = open_checkpoint(memory, "first");
  expect_source(a, run);
  const Checkpoint b = hop(a, second, memory, run.random());
  if (!b.optimizer_problem.empty()) {
    EXPECT_NE(b.optimizer, OptimizerLayout::fully_reshardable) << b.optimizer_problem;
    return false;
  }
  RunState last = state_of(b);
  retarget(last, first);
  set_distributed_optimizer(last, true);
  test::write(plan_torch_dist(std::move(last), {}), memory, "third");
  expect_source(open_checkpoint(memory, "third"), run);
  return true;
}

TEST(ReshardProperty, ThereAndBackIsTheIdentity) {
  const uint64_t cases = number_from_environment("FERRY_PROPERTY_CASES", 200);
  const uint64_t seed = number_from_environment("FERRY_PROPERTY_SEED", 1);
  uint64_t done = 0;
  for (uint64_t i = 0; i < cases && !HasFailure(); ++i) {
    try {
      done += there_and_back(seed * 1'000'000 + i);
    } catch (const std::exception& error) {
      FAIL() << "seed " << seed * 1'000'000 + i << ": " << error.what();
    }
  }
  EXPECT_GE(done, cases * 3 / 4);
}

}  // namespace
}  // namespace ferry
