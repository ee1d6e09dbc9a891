#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "kernels/cuda/cuda_kernels.h"
#include "tests/kernels/support.h"

namespace ferry::kernels::cuda {
namespace {

TEST(CudaKernels, GiveZeroMemoryThatOutlivesThem) {
  std::shared_ptr<void> memory;
  char back[4] = "xyz";
  {
    CudaKernels kernels(0);
    memory = kernels.allocate(1000);
    EXPECT_EQ(kernels.allocate(0), nullptr);
    try {
      (void)kernels.allocate(size_t{1} << 50);
      ADD_FAILURE() << "a PiB";
    } catch (const OutOfDeviceMemory& error) {
      EXPECT_THAT(error.what(),
                  testing::HasSubstr("GPU 0 is out of memory for another 1048576.000 GiB"));
    }
    EXPECT_THROW((void)kernels.device().workspace(size_t{1} << 50), OutOfDeviceMemory);
    kernels.download(memory.get(), back, 3);
    kernels.wait();
    EXPECT_EQ(std::string(back, 3), std::string(3, '\0'));
  }
  CudaKernels others(0);
  others.upload("abc", memory.get(), 3);
  others.download(memory.get(), back, 3);
  others.wait();
  EXPECT_STREQ(back, "abc");
}

// More than the ring of pinned memory holds, in pieces of all sizes, both ways at once.
TEST(CudaKernels, MoveBytesInOrder) {
  CudaKernels kernels(0);
  constexpr size_t kCount = size_t{20} << 20;
  const auto memory = kernels.allocate(kCount * 4);
  std::vector<int32_t> numbers(kCount), back(kCount);
  std::iota(numbers.begin(), numbers.end(), 7);
  auto* const device = static_cast<int32_t*>(memory.get());
  size_t next = 0;
  for (size_t size = 1; next < kCount; size = size * 3 % 1000003 + 1) {
    const size_t count = std::min(size, kCount - next);
    std::vector<int32_t> part(numbers.begin() + static_cast<ptrdiff_t>(next),
                              numbers.begin() + static_cast<ptrdiff_t>(next + count));
    kernels.upload(part.data(), device + next, count * 4);
    std::fill(part.begin(), part.end(), -1);  // they may change at once
    kernels.download(device + next, back.data() + next, count * 4);
    next += count;
  }
  kernels.wait();
  EXPECT_TRUE(numbers == back);
}

TEST(Products, GiveTheSameBitsFromAnyDevice) {
  std::string first;
  for (int time = 0; time < 3; ++time) {
    CudaKernels kernels(0);
    const int64_t m = 768, n = 3072, k = 4096;
    const auto a = random_numbers(m * k, Type::bf16, 1), b = random_numbers(k * n, Type::bf16, 2);
    Numbers c(static_cast<size_t>(m * n), Type::f32);
    kernels.run(Matmul{.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .accumulate = true});
    kernels.wait();
    if (time == 0) first = c.bits();
    EXPECT_TRUE(first == c.bits());
  }
}

}  // namespace
}  // namespace ferry::kernels::cuda
