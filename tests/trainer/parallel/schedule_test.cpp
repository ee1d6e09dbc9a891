// Pipeline schedules: every pass once, in an order that all stages can keep.
#include "trainer/parallel/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

struct Pass {
  bool is_forward;
  int64_t stage, chunk, micro_batch;
  auto operator<=>(const Pass&) const = default;
};

// What must be done before a pass can begin: the pass of the stage before, or after.
std::vector<Pass> needs(const Pass& pass, int64_t stages, int64_t chunks) {
  std::vector<Pass> all;
  const int64_t place = pass.chunk * stages + pass.stage, last = stages * chunks - 1;
  const auto at = [&](bool is_forward, int64_t where) {
    return Pass{is_forward, where % stages, where / stages, pass.micro_batch};
  };
  if (pass.is_forward && place > 0) all.push_back(at(true, place - 1));
  if (!pass.is_forward) all.push_back(at(true, place));
  if (!pass.is_forward && place < last) all.push_back(at(false, place + 1));
  return all;
}

// Lets each stage do its next pass whenever that can begin; false where all wait for each other.
bool comes_to_an_end(int64_t stages, int64_t chunks, int64_t micro_batches) {
  std::map<int64_t, std::vector<PipelineAction>> schedules;
  for (int64_t stage = 0; stage < stages; ++stage) {
    schedules[stage] = pipeline_schedule(stages, stage, chunks, micro_batches);
  }
  std::map<int64_t, size_t> next;
  std::set<Pass> done;
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t stage = 0; stage < stages; ++stage) {
      if (next[stage] == schedules[stage].size()) continue;
      const PipelineAction& action = schedules[stage][next[stage]];
      const Pass pass{action.is_forward, stage, action.chunk, action.micro_batch};
      bool can_begin = true;
      for (const Pass& need : needs(pass, stages, chunks)) can_begin &= done.contains(need);
      if (!can_begin) continue;
      EXPECT_TRUE(done.insert(pass).second);
      ++next[stage];
      moved = true;
    }
  }
  return done.size() == static_cast<size_t>(2 * stages * chunks * micro_batches);
}

TEST(Schedule, DoesEveryPassOnce) {
  for (const int64_t stages : {1, 2, 3, 4}) {
    for (const int64_t micro_batches : {1, 2, 3, 8, 12}) {
      EXPECT_TRUE(comes_to_an_end(stages, 1, micro_batches)) << stages << " " << micro_batches;
    }
    for (const int64_t chunks : {2, 3}) {
      EXPECT_TRUE(comes_to_an_end(stages, chunks, 2 * stages)) << stages << " " << chunks;
    }
  }
}

// As Narayanan et al. 2021 draw it: the first of four stages keeps four micro-batches at most.
TEST(Schedule, KeepsFewMicroBatches) {
  for (int64_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(most_in_flight(pipeline_schedule(4, stage, 1, 16), 0), 4 - stage);
  }
  EXPECT_EQ(most_in_flight(pipeline_schedule(4, 0, 1, 2), 0), 2);
  const auto two = pipeline_schedule(2, 0, 1, 2);
  const std::vector<PipelineAction> expected{
      {true, 0, 0}, {true, 0, 1}, {false, 0, 0}, {false, 0, 1}};
  EXPECT_EQ(two, expected);
}

TEST(Schedule, RefusesMicroBatchesThatVirtualStagesCannotShare) {
  EXPECT_THROW(pipeline_schedule(2, 0, 2, 3), Error);
}

}  // namespace
}  // namespace ferry
