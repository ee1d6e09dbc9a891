// Copies between strided layouts, transpositions above all, against an element-by-element model.
#include "ckpt/engine/elements/strided_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>

#include "ckpt/base/cast.h"
#include "ckpt/engine/elements/transpose.h"
#include "ckpt/engine/tiles/buffer.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

std::vector<std::byte> random_bytes(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Transposes into a buffer of 0xee, `misalignment` bytes after a cache line, and checks every
// byte of it.
void expect_transposed(Matrix shape, int64_t element_bytes, int64_t in_padding, int64_t out_padding,
                       int64_t misalignment) {
  SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns << " of " << element_bytes
                                  << " bytes, padded " << in_padding << " and " << out_padding
                                  << ", at " << misalignment);
  const int64_t in_pitch = shape.columns * element_bytes + in_padding;
  const int64_t out_pitch = shape.rows * element_bytes + out_padding;
  const auto in = random_bytes(shape.rows * in_pitch, 1);
  const auto bytes = static_cast<size_t>(misalignment + shape.columns * out_pitch);
  std::vector<std::byte> expected(bytes, std::byte{0xee});
  Buffer buffer;
  const auto found = buffer.take(bytes);
  std::memset(found.data(), 0xee, bytes);
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.columns; ++c) {
      std::memcpy(expected.data() + misalignment + c * out_pitch + r * element_bytes,
                  in.data() + r * in_pitch + c * element_bytes, static_cast<size_t>(element_bytes));
    }
  }
  transpose(in.data(), in_pitch, found.data() + misalignment, out_pitch, shape, element_bytes);
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), bytes), 0);
}

class Transpose : public testing::TestWithParam<int64_t> {};

TEST_P(Transpose, PutsEveryElementInPlaceAndNothingElse) {
  const int64_t bytes = GetParam();
  for (const int64_t rows : {1, 2, 7, 16, 33, 100, 300}) {
    for (const int64_t columns : {1, 3, 8, 17, 64, 129}) {
      expect_transposed({rows, columns}, bytes, 0, 0, 0);
      expect_transposed({rows, columns}, bytes, 5, 3, 1);
    }
  }
}

// Large targets, written past the cache where their rows are aligned to its lines.
TEST_P(Transpose, OfManyBytes) {
  const int64_t bytes = GetParam();
  expect_transposed({4096 / bytes, 600}, bytes, 0, 0, 0);
  expect_transposed({4096 / bytes + 13, 600}, bytes, 64, 64 - 13 * bytes % 64, 0);
  expect_transposed({4096 / bytes - 5, 603}, bytes, 1, 5 * bytes, 64);
  expect_transposed({4096 / bytes, 600}, bytes, 0, 0, 16);
  expect_transposed({4096 / bytes, 600}, bytes, 0, 16, 0);
}

INSTANTIATE_TEST_SUITE_P(ElementBytes, Transpose, testing::Values(1, 2, 4, 8, 16));

// Three loops in any order of strides on either side, both dtypes.
TEST(StridedCopy, FollowsAnyStrides) {
  const std::pair<DType, DType> dtypes[] = {{DType::u8, DType::u8},    {DType::bf16, DType::bf16},
                                            {DType::f32, DType::f32},  {DType::c128, DType::c128},
                                            {DType::f32, DType::bf16}, {DType::f16, DType::f32},
                                            {DType::bf16, DType::f64}};
  test::for_random_cases(600, [&](uint64_t number) {
    std::mt19937_64 random(number);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const auto [in_dtype, out_dtype] = dtypes[number % std::size(dtypes)];
    const int64_t in_bytes = size_bytes(in_dtype), out_bytes = size_bytes(out_dtype);
    std::vector<StridedLoop> loops(3);
    for (StridedLoop& loop : loops) loop.count = pick(1, number % 7 == 0 ? 150 : 20);
    const auto lay_out = [&](int64_t bytes, auto member) {
      std::vector<size_t> order{0, 1, 2};
      std::shuffle(order.begin(), order.end(), random);
      for (size_t i : order) {
        loops[i].*member = bytes;
        bytes = bytes * loops[i].count + (pick(0, 1) ? 0 : pick(0, 20));
      }
      return bytes;
    };
    const auto in = random_bytes(lay_out(in_bytes, &StridedLoop::in_stride), 5);
    const auto size = static_cast<size_t>(lay_out(out_bytes, &StridedLoop::out_stride));
    std::vector<std::byte> expected(size), found(size);
    for (int64_t a = 0; a < loops[0].count; ++a) {
      for (int64_t b = 0; b < loops[1].count; ++b) {
        for (int64_t c = 0; c < loops[2].count; ++c) {
          const auto at = [&](auto member) {
            return a * (loops[0].*member) + b * (loops[1].*member) + c * (loops[2].*member);
          };
          const std::byte* from = in.data() + at(&StridedLoop::in_stride);
          std::byte* to = expected.data() + at(&StridedLoop::out_stride);
          if (in_dtype == out_dtype) {
            std::memcpy(to, from, static_cast<size_t>(in_bytes));
          } else {
            convert(from, in_bytes, in_dtype, to, out_bytes, out_dtype, 1);
          }
        }
      }
    }
    strided_copy(in.data(), in_dtype, found.data(), out_dtype, loops);
    ASSERT_EQ(found, expected);
    strided_copy(nullptr, in_dtype, found.data(), out_dtype, loops);
    for (int64_t a = 0; a < loops[0].count; ++a) {
      ASSERT_EQ(found[static_cast<size_t>(a * loops[0].out_stride)], std::byte{0});
    }
  });
}

}  // namespace
}  // namespace ferry
