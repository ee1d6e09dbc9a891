// Gradients of norms on a GPU against the processor's, for rows of all widths that are summed in
// blocks.
#include <gtest/gtest.h>

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

struct Gradients {
  Numbers dx, dweight, dbias;
};

/// Of several heads there are gaps between rows and between heads.
Gradients gradients(Kernels& kernels, int64_t rows, int64_t heads, int64_t width, Type type,
                    bool rms) {
  const int64_t head_stride = heads > 1 ? width + 8 : width;
  const int64_t row_stride = heads > 1 ? heads * head_stride + 16 : width;
  const int64_t count = rows * row_stride;
  const auto x = random_numbers(count, type, 1), dy = random_numbers(count, type, 2);
  const auto weight = random_numbers(width, type, 3);
  Numbers y(x.size(), type), mean(static_cast<size_t>(rows * heads), Type::f32), inverse = mean;
  kernels.run(NormForward{.rows = rows,
                          .width = width,
                          .heads = heads,
                          .row_stride = row_stride,
                          .head_stride = head_stride,
                          .rms = rms,
                          .x = x,
                          .weight = weight,
                          .y = y,
                          .mean = mean.floats(),
                          .inverse = inverse.floats()});
  Gradients all{random_numbers(count, type, 4), random_numbers(width, Type::f32, 5),
                random_numbers(width, Type::f32, 6)};
  kernels.run(NormBackward{.rows = rows,
                           .width = width,
                           .heads = heads,
                           .row_stride = row_stride,
                           .head_stride = head_stride,
                           .rms = rms,
                           .accumulate = true,
                           .x = x,
                           .weight = weight,
                           .mean = mean.floats(),
                           .inverse = inverse.floats(),
                           .dy = dy,
                           .dx = all.dx,
                           .dweight = all.dweight,
                           .dbias = rms ? Array() : all.dbias.array()});
  return all;
}

TEST(NormBlocks, EqualTheProcessors) {
  const auto processor = cpu_kernels(1), gpu = one_device();
  for (const int64_t width :
       {8, 40, 64, 72, 128, 200, 248, 256, 768, 2048, 2304, 4096, 5120, 16384}) {
    for (const Type type : kTypes) {
      for (const bool rms : {false, true}) {
        const int64_t rows = width == 256 ? 9001 : 77, heads = width < 248 ? 3 : 1;
        const auto expected = gradients(*processor, rows, heads, width, type, rms);
        const auto got = gradients(*gpu, rows, heads, width, type, rms);
        const std::string what = std::to_string(width) + " " + name_of(type);
        const double size = 2 * std::sqrt(static_cast<double>(rows * heads));
        expect_near(got.dx, expected.dx.values(), type == Type::f32 ? 64 : 2, 4, what);
        expect_near(got.dweight, expected.dweight.values(), 64, size, what);
        expect_near(got.dbias, expected.dbias.values(), 64, size, what);
      }
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
