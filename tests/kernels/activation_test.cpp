#include <algorithm>

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

constexpr Activation kKinds[] = {
    Activation::swiglu,      Activation::gelu,  Activation::gelu_tanh, Activation::squared_relu,
    Activation::quick_geglu, Activation::xielu, Activation::relu};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::log1p(std::exp(x)); }

/// `up` of gated functions only.
double activation(Activation kind, double x, double up, double alpha_p, double alpha_n,
                  const GluSettings& glu = {}) {
  if (glu.clamp != 0) {
    const double clamp = glu.clamp;
    x = std::min(x, clamp);
    up = std::clamp(up, -clamp, clamp);
  }
  up += static_cast<double>(glu.offset);
  switch (kind) {
    case Activation::swiglu:
      return x * sigmoid(x) * up;
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::squared_relu:
      return x > 0 ? x * x : 0;
    case Activation::quick_geglu:
      return x * sigmoid(1.702 * x) * up;
    case Activation::xielu:
      return 0.5 * x + (x > 0 ? softplus(alpha_p) * x * x
                              : (0.5 + softplus(alpha_n)) * (std::expm1(std::min(x, -1e-6)) - x));
  }
  return 0;
}

struct Inputs {
  Activation kind;
  int64_t rows, width;
  bool has_scale;
  GluSettings glu;
  Numbers x, dy, scale, alpha_p, alpha_n;

  Inputs(Activation k, int64_t r, int64_t w, bool s, Type type, const GluSettings& g = {})
      : kind(k), rows(r), width(w), has_scale(s), glu(g) {
    x = random_numbers(rows * width * (is_gated(kind) ? 2 : 1), type, 1, 3);
    dy = random_numbers(rows * width, type, 2);
    scale = random_numbers(rows, Type::f32, 3);
    alpha_p = random_numbers(1, type, 4);
    alpha_n = random_numbers(1, type, 5);
  }
  /// y of one element of a row, with `by` added to input number `which`: 0 and 1 are x and up, 2
  /// and 3 the parameters.
  double value(int64_t row, int64_t i, int which = 0, double by = 0) const {
    const int64_t at = is_gated(kind) ? 2 * row * width + i : row * width + i;
    double in[4] = {x[at], is_gated(kind) ? x[at + width] : 0, alpha_p[0L], alpha_n[0L]};
    in[which] += by;
    return activation(kind, in[0], in[1], in[2], in[3], glu);
  }
  double slope(int64_t row, int64_t i, int which) const {
    constexpr double kStep = 1e-6;
    return (value(row, i, which, kStep) - value(row, i, which, -kStep)) / (2 * kStep);
  }
  double factor(int64_t row) const { return has_scale ? scale[row] : 1; }
};

std::vector<Inputs> all_inputs(Type type) {
  std::vector<Inputs> all;
  for (const auto kind : kKinds) {
    all.emplace_back(kind, 5, 37, false, type);
    all.emplace_back(kind, 3, 16, true, type);
    all.emplace_back(kind, 1, 1, true, type);
    all.emplace_back(kind, 0, 4, false, type);
    if (!is_gated(kind)) continue;
    // No 16-bit number is where the slope jumps.
    all.emplace_back(kind, 5, 37, true, type, GluSettings{.clamp = 2.03F, .offset = 1});
    all.emplace_back(kind, 2, 16, false, type, GluSettings{.clamp = 2.03F});
    all.emplace_back(kind, 2, 40, false, type, GluSettings{.offset = 0.5F});
  }
  return all;
}

TEST(Activation, ForwardEqualsAPlainLoop) {
  for (const Type type : kTypes) {
    for (const auto& in : all_inputs(type)) {
      const auto y = on_all(Numbers(in.dy.size(), type), [&](Numbers& to) {
        return ActivationForward{.kind = in.kind,
                                 .rows = in.rows,
                                 .width = in.width,
                                 .x = in.x,
                                 .y = to,
                                 .glu = in.glu,
                                 .row_scale = in.has_scale ? in.scale.floats() : nullptr,
                                 .alpha_p = in.alpha_p,
                                 .alpha_n = in.alpha_n};
      });
      std::vector<double> expected(in.dy.size());
      for (int64_t row = 0; row < in.rows; ++row) {
        for (int64_t i = 0; i < in.width; ++i) {
          expected[static_cast<size_t>(row * in.width + i)] = in.factor(row) * in.value(row, i);
        }
      }
      expect_near(y, expected, type == Type::f32 ? 8 : 0.6, 1, name_of(type));
    }
  }
}

TEST(Activation, BackwardEqualsFiniteDifferences) {
  for (const Type type : kTypes) {
    for (const auto& in : all_inputs(type)) {
      Numbers dscale, dp, dn, dbias;
      const auto width = static_cast<size_t>(is_gated(in.kind) ? 2 * in.width : in.width);
      const bool is_xielu = in.kind == Activation::xielu;
      const auto dx = on_all(Numbers(in.x.size(), type), [&](Numbers& to) {
        dscale = Numbers(static_cast<size_t>(in.rows), Type::f32);
        dp = dn = Numbers(std::vector<double>{0.5}, Type::f32);
        dbias = Numbers(std::vector<double>(width, 0.25), Type::f32);
        return ActivationBackward{.kind = in.kind,
                                  .rows = in.rows,
                                  .width = in.width,
                                  .x = in.x,
                                  .dy = in.dy,
                                  .dx = to,
                                  .glu = in.glu,
                                  .row_scale = in.has_scale ? in.scale.floats() : nullptr,
                                  .drow_scale = dscale.floats(),
                                  .alpha_p = in.alpha_p,
                                  .alpha_n = in.alpha_n,
                                  .dalpha_p = is_xielu ? dp.array() : Array(),
                                  .dalpha_n = is_xielu ? dn.array() : Array(),
                                  .dbias = in.has_scale ? Gradient() : Gradient(dbias, false)};
      });
      std::vector<double> expected(in.x.size()), by_scale(dscale.size());
      double by_p = 0.5, by_n = 0.5;
      for (int64_t row = 0; row < in.rows; ++row) {
        for (int64_t i = 0; i < in.width; ++i) {
          const double dy = in.dy[row * in.width + i], scaled = in.factor(row) * dy;
          const auto at = static_cast<size_t>((is_gated(in.kind) ? 2 : 1) * row * in.width + i);
          expected[at] = scaled * in.slope(row, i, 0);
          if (is_gated(in.kind)) {
            expected[at + static_cast<size_t>(in.width)] = scaled * in.slope(row, i, 1);
          }
          by_scale[static_cast<size_t>(row)] += dy * in.value(row, i);
          by_p += scaled * in.slope(row, i, 2);
          by_n += scaled * in.slope(row, i, 3);
        }
      }
      expect_near(dx, expected, type == Type::f32 ? 32 : 0.6, 1, name_of(type));
      expect_near(dscale, by_scale, 32, 16, "dscale");
      if (!in.has_scale) {
        std::vector<double> sums(width);
        for (size_t i = 0; i < dx.size(); ++i) sums[i % width] += dx[i];
        expect_near(dbias, sums, 32, 16, "dbias");
      }
      if (!is_xielu) continue;
      expect_near(dp, {by_p}, 64, 64, "dalpha_p");
      expect_near(dn, {by_n}, 64, 64, "dalpha_n");
    }
  }
}

// What is clamped has no gradient, what is at the clamp has (as in PyTorch), and NaN is not clamped
// away: a run that has it must end.
TEST(Activation, ClampsAtTheClampAndNotNaN) {
  const double nan = std::nan("");
  // Gates, then ups.
  const Numbers x(std::vector<double>{2, 3, 1, 1, 1, nan, 1, 1, 1, 2, -2, -3, 1, nan}, Type::f32);
  const Numbers dy(std::vector<double>(7, 1), Type::f32);
  for (const auto kind : {Activation::swiglu, Activation::quick_geglu}) {
    for (auto& device : devices()) {  // whose NaN have different bits
      Numbers dx(x.size(), Type::f32), y(dy.size(), Type::f32);
      device.kernels->run(ActivationBackward{
          .kind = kind, .rows = 1, .width = 7, .x = x, .dy = dy, .dx = dx, .glu = {.clamp = 2}});
      for (const size_t with : {0, 2, 3, 4, 7, 8, 9, 10}) EXPECT_NE(dx[with], 0) << with;
      for (const size_t without : {1, 11}) EXPECT_EQ(dx[without], 0) << without;
      for (const size_t undefined : {5, 6, 12}) EXPECT_TRUE(std::isnan(dx[undefined])) << undefined;
      device.kernels->run(ActivationForward{
          .kind = kind, .rows = 1, .width = 7, .x = x, .y = y, .glu = {.clamp = 2}});
      EXPECT_EQ(y[size_t{0}], y[size_t{1}]);
      EXPECT_EQ(y[size_t{3}], y[size_t{4}]);
      for (const size_t undefined : {5, 6}) EXPECT_TRUE(std::isnan(y[undefined])) << undefined;
    }
  }
}

TEST(Activation, GradientsMayReplaceTheInput) {
  const Inputs in(Activation::swiglu, 4, 20, false, Type::f32);
  Numbers dx(in.x.size(), Type::f32), same = in.x;
  ActivationBackward x{
      .kind = in.kind, .rows = in.rows, .width = in.width, .x = in.x, .dy = in.dy, .dx = dx};
  const auto kernels = one_device(1);
  kernels->run(x);
  x.x = same;
  x.dx = same;
  kernels->run(x);
  EXPECT_TRUE(dx.bits() == same.bits());
}

/// The greatest error of gelu's parts would show here: each float near zero and far from it.
TEST(Activation, KeepsSmallAndLargeNumbers) {
  std::vector<double> numbers{0, 1e-30, -1e-30, 1e-6, -1e-6, 12, -12, 80, -80, 3e4, -3e4};
  const Numbers x(numbers, Type::f32);
  for (const auto kind :
       {Activation::gelu, Activation::gelu_tanh, Activation::squared_relu, Activation::relu}) {
    const auto y = on_all(x, [&](Numbers& to) {
      return ActivationForward{
          .kind = kind, .rows = 1, .width = static_cast<int64_t>(numbers.size()), .x = x, .y = to};
    });
    std::vector<double> expected;
    for (size_t i = 0; i < x.size(); ++i) expected.push_back(activation(kind, x[i], 0, 0, 0));
    expect_near(y, expected, 4, 1e-6, "");
  }
}

}  // namespace
}  // namespace ferry::kernels
