#include <algorithm>

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

struct Shape {
  int64_t rows, heads, width, row_stride, head_stride;
};
constexpr Shape kShapes[] = {{5, 1, 37, 0, 0},    {1, 1, 1, 0, 0}, {70, 1, 200, 0, 0},
                             {3, 2, 16, 100, 48}, {0, 1, 8, 0, 0}, {21, 3, 64, 256, 80},
                             {5, 2, 120, 0, 0}};
constexpr double kEpsilon = 1e-5;

struct Rows {
  Shape shape;
  int64_t start(int64_t index) const {
    const int64_t head_stride = shape.head_stride ? shape.head_stride : shape.width;
    const int64_t row_stride = shape.row_stride ? shape.row_stride : shape.heads * head_stride;
    return index / shape.heads * row_stride + index % shape.heads * head_stride;
  }
  int64_t count() const { return shape.rows * shape.heads; }
  int64_t elements() const { return count() == 0 ? 0 : start(count() - 1) + shape.width; }
};

/// The forward pass in double precision, of plain numbers.
std::vector<double> normalised(const Rows& rows, bool rms, const std::vector<double>& x,
                               const std::vector<double>& weight, const std::vector<double>& bias,
                               std::vector<double> y) {
  const auto width = static_cast<size_t>(rows.shape.width);
  for (int64_t index = 0; index < rows.count(); ++index) {
    const auto at = static_cast<size_t>(rows.start(index));
    double mean = 0, squares = 0;
    for (size_t i = 0; i < width; ++i) mean += rms ? 0 : x[at + i] / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) {
      squares += (x[at + i] - mean) * (x[at + i] - mean) / static_cast<double>(width);
    }
    for (size_t i = 0; i < width; ++i) {
      y[at + i] = (x[at + i] - mean) / std::sqrt(squares + kEpsilon) * weight[i];
      if (!bias.empty()) y[at + i] += bias[i];
    }
  }
  return y;
}

struct NormInputs {
  Numbers x, weight, bias, dy, mean, inverse;
};

NormInputs inputs(const Rows& rows, Type type) {
  const auto count = static_cast<size_t>(rows.count());
  return {random_numbers(rows.elements(), type, 1),
          random_numbers(rows.shape.width, type, 2),
          random_numbers(rows.shape.width, type, 3),
          random_numbers(rows.elements(), type, 4),
          Numbers(count, Type::f32),
          Numbers(count, Type::f32)};
}

NormForward norm_forward(const Rows& rows, bool rms, const NormInputs& in, const Numbers& y) {
  return {.rows = rows.shape.rows,
          .width = rows.shape.width,
          .heads = rows.shape.heads,
          .row_stride = rows.shape.row_stride,
          .head_stride = rows.shape.head_stride,
          .epsilon = kEpsilon,
          .rms = rms,
          .x = in.x,
          .weight = in.weight,
          .bias = rms ? ConstArray() : ConstArray(in.bias),
          .y = y,
          .mean = in.mean.floats(),
          .inverse = in.inverse.floats()};
}

TEST(Norm, ForwardEqualsAPlainLoop) {
  for (const auto& shape : kShapes) {
    for (const Type type : kTypes) {
      for (const bool rms : {false, true}) {
        const Rows rows{shape};
        const auto in = inputs(rows, type);
        const auto before = random_numbers(rows.elements(), type, 9);  // gaps stay
        const auto y = on_all(before, [&](Numbers& to) { return norm_forward(rows, rms, in, to); });
        const auto bias = rms ? std::vector<double>() : in.bias.values();
        expect_near(y,
                    normalised(rows, rms, in.x.values(), in.weight.values(), bias, before.values()),
                    type == Type::f32 ? 16 : 0.6, 0.5, name_of(type));
      }
    }
  }
}

TEST(Norm, AddsTheResidualFirst) {
  for (const Type type : kTypes) {
    for (const bool rms : {false, true}) {
      const Rows rows{{5, 1, 264, 0, 0}};
      const auto in = inputs(rows, type);
      const auto residual = random_numbers(rows.elements(), type, 8);
      for (auto& device : devices()) {
        Numbers sum(in.x.size(), type), reference(in.x.size(), type), got = reference,
                                                                      got_sum = sum;
        device.kernels->run(Add{.count = rows.elements(), .a = in.x, .b = residual, .y = sum});
        auto apart = norm_forward(rows, rms, in, reference);
        apart.x = sum;
        device.kernels->run(apart);
        auto at_once = norm_forward(rows, rms, in, got);
        at_once.residual = residual;
        at_once.sum = got_sum;
        device.kernels->run(at_once);
        EXPECT_TRUE(sum.bits() == got_sum.bits()) << device.name;
        EXPECT_TRUE(reference.bits() == got.bits()) << device.name;
      }
    }
  }
}

TEST(Norm, OnePlusWeightAddsOne) {
  const Rows rows{{2, 1, 3, 0, 0}};
  auto in = inputs(rows, Type::f32);
  const auto y = on_all(Numbers(6, Type::f32), [&](Numbers& to) {
    auto x = norm_forward(rows, true, in, to);
    x.one_plus_weight = true;
    return x;
  });
  auto weight = in.weight.values();
  for (auto& w : weight) w += 1;
  expect_near(y, normalised(rows, true, in.x.values(), weight, {}, y.values()), 16, 0.5, "");
}

/// The loss whose gradient by y is dy.
double loss(const Rows& rows, bool rms, const NormInputs& in, const std::vector<double>& x,
            const std::vector<double>& weight, const std::vector<double>& bias) {
  const auto y = normalised(rows, rms, x, weight, bias, std::vector<double>(in.x.size()));
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * in.dy[i];
  return sum;
}

void check_gradients(const Shape& shape, Type type, bool rms, bool accumulate) {
  const Rows rows{shape};
  const auto in = inputs(rows, type);
  auto scratch = in.dy;
  one_device(1)->run(norm_forward(rows, rms, in, scratch));
  const auto before = random_numbers(rows.elements(), type, 5);
  const auto dweight_before = random_numbers(shape.width, Type::f32, 6);
  Numbers dweight, dbias;
  const auto dx = on_all(before, [&](Numbers& to) {
    dweight = dweight_before;
    dbias = dweight_before;
    return NormBackward{.rows = shape.rows,
                        .width = shape.width,
                        .heads = shape.heads,
                        .row_stride = shape.row_stride,
                        .head_stride = shape.head_stride,
                        .rms = rms,
                        .accumulate = accumulate,
                        .x = in.x,
                        .weight = in.weight,
                        .mean = in.mean.floats(),
                        .inverse = in.inverse.floats(),
                        .dy = in.dy,
                        .dx = to,
                        .dweight = {dweight, accumulate},
                        .dbias = rms ? Gradient() : Gradient(dbias, accumulate)};
  });
  const auto x = in.x.values(), weight = in.weight.values(), bias = in.bias.values();
  const auto slope = [&](int which, size_t i) {
    constexpr double kStep = 1e-5;
    auto up = std::array{x, weight, bias}, down = up;
    up[static_cast<size_t>(which)][i] += kStep;
    down[static_cast<size_t>(which)][i] -= kStep;
    const auto no_bias = std::vector<double>();
    return (loss(rows, rms, in, up[0], up[1], rms ? no_bias : up[2]) -
            loss(rows, rms, in, down[0], down[1], rms ? no_bias : down[2])) /
           (2 * kStep);
  };
  auto expected = before.values();
  for (int64_t index = 0; index < rows.count(); ++index) {
    for (int64_t i = rows.start(index); i < rows.start(index) + shape.width; ++i) {
      const auto at = static_cast<size_t>(i);
      expected[at] = slope(0, at) + (accumulate ? before[at] : 0);
    }
  }
  const double rows_size = 1 + std::sqrt(static_cast<double>(rows.count()));
  expect_near(dx, expected, type == Type::f32 ? 64 : 1, 4, "dx");
  auto by_weight = dweight_before.values(), by_bias = by_weight;
  if (!accumulate) std::ranges::fill(by_weight, 0.0);
  if (!accumulate && !rms) std::ranges::fill(by_bias, 0.0);
  for (size_t i = 0; i < by_weight.size(); ++i) {
    by_weight[i] += slope(1, i);
    by_bias[i] += rms ? 0 : slope(2, i);
  }
  expect_near(dweight, by_weight, 64, rows_size, "dweight");
  expect_near(dbias, by_bias, 64, rows_size, "dbias");
}

TEST(Norm, BackwardEqualsFiniteDifferences) {
  for (const auto& shape : {Shape{5, 1, 37, 0, 0}, Shape{3, 2, 16, 100, 48}, Shape{66, 1, 3, 0, 0},
                            Shape{1, 1, 67, 0, 0}, Shape{0, 1, 4, 0, 0}, Shape{9, 1, 264, 0, 0},
                            Shape{7, 3, 24, 96, 32}}) {
    for (const Type type : kTypes) {
      check_gradients(shape, type, true, false);
      check_gradients(shape, type, false, true);
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
