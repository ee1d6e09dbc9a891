// Kernels that compute nothing.
#include "kernels/planning.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace ferry::kernels {
namespace {

// Plans a thousand ranks: more memory than a process has addresses for.
TEST(Planning, TakesNoAddresses) {
  constexpr size_t kBytes = size_t{1} << 38;
  std::vector<std::unique_ptr<PlanningKernels>> ranks;
  std::vector<std::shared_ptr<void>> memory;
  for (int rank = 0; rank < 1000; ++rank) {
    PlanningKernels& planning = *ranks.emplace_back(std::make_unique<PlanningKernels>());
    memory.push_back(planning.allocate(kBytes));
    memory.push_back(planning.allocate(1));
    memory.push_back(planning.allocate(0));
    const auto address = [&](size_t back) {
      return reinterpret_cast<uintptr_t>(memory[memory.size() - back].get());
    };
    EXPECT_GE(address(2), address(3) + kBytes);
    EXPECT_GT(address(1), address(2));
    EXPECT_EQ(address(3) % 64, 0u);
    EXPECT_EQ(planning.bytes(), static_cast<int64_t>(kBytes) + 1);
  }
}

TEST(PlanningDeathTest, CannotBeTouched) {
  PlanningKernels planning;
  const auto memory = planning.allocate(8);
  EXPECT_DEATH(*static_cast<volatile char*>(memory.get()) = 1, "");
}

}  // namespace
}  // namespace ferry::kernels
