// Steps of a small model at any layout: what they give is compared in full precision.
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "tests/trainer/parallel/small_rank.h"

namespace ferry::test {

/// What all ranks compute; each is a thread. `expected`: the beginning of the error that they end
/// with.
inline RunFigures train(const SmallRun& small, const std::string& expected = "") {
  const auto groups = thread_groups(static_cast<int>(small.run.world_size));
  const auto links = thread_links(groups);
  RunFigures figures;
  std::string problem;
  std::mutex mutex;
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const RunFigures own =
            or_abort(*groups[rank], [&] { return SmallRank(small, links[rank]).train(); });
        if (rank == 0) figures = own;
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        problem = error.what();
      }
    });
  }
  threads.clear();
  EXPECT_EQ(problem.substr(0, expected.empty() ? problem.npos : expected.size()), expected);
  return figures;
}

inline void expect_alike(const RunFigures& ours, const RunFigures& expected, double tolerance) {
  ASSERT_EQ(ours.steps.size(), expected.steps.size());
  for (size_t i = 0; i < ours.steps.size(); ++i) {
    const StepFigures &a = ours.steps[i], &b = expected.steps[i];
    EXPECT_NEAR(a.loss / b.loss, 1, tolerance) << "step " << i;
    EXPECT_NEAR(a.norm / b.norm, 1, tolerance) << "step " << i;
    for (const auto& [name, value] : b.others) {
      ASSERT_TRUE(a.others.contains(name)) << name;
      EXPECT_NEAR(a.others.at(name), value, tolerance * std::abs(value)) << name << " step " << i;
    }
  }
}

}  // namespace ferry::test
