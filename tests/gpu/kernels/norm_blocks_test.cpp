// Norms and their gradients on a GPU against the processor's, for rows of all widths that kernels
// of their own are for.
#include <gtest/gtest.h>

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

struct Results {
  Numbers sum, y, dx, dweight, dbias;
};

/// With several heads there are gaps between rows and heads; with one, a residual is added. y
/// and the gradients are of type `other`. RMSNorm's dx takes the place of dy, LayerNorm's is added
/// to.
Results results(Kernels& kernels, int64_t rows, int64_t heads, int64_t width, Type type, Type other,
                bool rms) {
  const int64_t head_stride = heads > 1 ? width + 8 : width;
  const int64_t row_stride = heads > 1 ? heads * head_stride + 16 : width;
  const int64_t count = rows * row_stride;
  const auto x = random_numbers(count, type, 1), dy = random_numbers(count, other, 2);
  const auto weight = random_numbers(width, type, 3), bias = random_numbers(width, type, 7);
  const auto residual = random_numbers(count, type, 8);
  Results all{x, random_numbers(count, other, 9), rms ? dy : random_numbers(count, other, 4),
              random_numbers(width, Type::f32, 5), random_numbers(width, Type::f32, 6)};
  Numbers mean(static_cast<size_t>(rows * heads), Type::f32), inverse = mean;
  kernels.run(NormForward{.rows = rows,
                          .width = width,
                          .heads = heads,
                          .row_stride = row_stride,
                          .head_stride = head_stride,
                          .rms = rms,
                          .x = x,
                          .residual = heads > 1 ? ConstArray() : residual.array(),
                          .sum = heads > 1 ? Array() : all.sum.array(),
                          .weight = weight,
                          .bias = rms ? ConstArray() : bias.array(),
                          .y = all.y,
                          .mean = mean.floats(),
                          .inverse = inverse.floats()});
  kernels.run(NormBackward{.rows = rows,
                           .width = width,
                           .heads = heads,
                           .row_stride = row_stride,
                           .head_stride = head_stride,
                           .rms = rms,
                           .accumulate = !rms,
                           .x = all.sum,
                           .weight = weight,
                           .mean = mean.floats(),
                           .inverse = inverse.floats(),
                           .dy = rms ? all.dx : dy,
                           .dx = all.dx,
                           .dweight = all.dweight,
                           .dbias = rms ? Array() : all.dbias.array()});
  return all;
}

TEST(NormBlocks, EqualTheProcessors) {
  const auto processor = cpu_kernels(1), gpu = one_device();
  const auto compare = [&](int64_t rows, int64_t heads, int64_t width, Type type, Type other) {
    for (const bool rms : {false, true}) {
      const auto expected = results(*processor, rows, heads, width, type, other, rms);
      const auto got = results(*gpu, rows, heads, width, type, other, rms);
      const std::string what =
          std::to_string(width) + " " + name_of(type) + " " + name_of(other) + (rms ? " rms" : "");
      const double size = 2 * std::sqrt(static_cast<double>(rows * heads));
      expect_near(got.sum, expected.sum.values(), 1, 4, what);
      expect_near(got.y, expected.y.values(), other == Type::f32 ? 64 : 2, 4, what);
      expect_near(got.dx, expected.dx.values(), other == Type::f32 ? 64 : 2, 4, what);
      expect_near(got.dweight, expected.dweight.values(), 64, size, what);
      expect_near(got.dbias, expected.dbias.values(), 64, size, what);
    }
  };
  for (const int64_t width : {8,   40,   64,   72,   128,  200,  248,  256,  264,  512,  768,
                              776, 1000, 1024, 1032, 2048, 2304, 4096, 5120, 8192, 16384}) {
    for (const Type type : kTypes) {
      compare(77, width < 248 ? 3 : 1, width, type, type);
      compare(77, width < 248 ? 3 : 1, width, type, Type::f32);
    }
    compare(5, 1, width, Type::f32, Type::bf16);
  }
  // More rows than blocks at once take with the least that each has.
  compare(20011, 3, 64, Type::bf16, Type::bf16);
  compare(6007, 1, 1032, Type::bf16, Type::bf16);
}

}  // namespace
}  // namespace ferry::kernels
