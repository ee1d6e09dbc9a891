#define FERRY_KERNELS_TARGET functions_test  // a compilation of its own
#include "kernels/cpu/functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace ferry::kernels::functions_test {
namespace {

/// The greatest error, in units of the last place, over floats between `low` and `high` a prime
/// apart.
template <typename F, typename G>
double greatest_error(float low, float high, const F& function, const G& truth) {
  double greatest = 0;
  constexpr uint32_t kStep = 1009;
  const auto check = [&](uint32_t bits) {
    const auto x = std::bit_cast<float>(bits);
    if (!(x >= low && x <= high)) return;
    const double expected = truth(static_cast<double>(x));
    if (std::fabs(expected) < 0x1p-126) return;
    const double got = function(all(x))[3];
    const double unit = std::ldexp(1, std::ilogb(expected) - 23);
    greatest = std::max(greatest, std::fabs(got - expected) / unit);
  };
  for (uint64_t bits = 1; bits < 0x7F800000; bits += kStep) {
    check(static_cast<uint32_t>(bits));
    check(static_cast<uint32_t>(bits) | 0x80000000);
  }
  return greatest;
}

TEST(Functions, AreAsExactAsTheySay) {
  EXPECT_LE(greatest_error(
                -87, 88.7F, [](Float x) { return exp(x); }, [](double x) { return std::exp(x); }),
            2);
  EXPECT_LE(greatest_error(
                0, 3e38F, [](Float x) { return x[0] < 0x1p-126F ? all(0) : log(x); },
                [](double x) { return x < 0x1p-126 ? 0 : std::log(x); }),
            2);
  EXPECT_LE(greatest_error(
                -50, 50, [](Float x) { return tanh(x); }, [](double x) { return std::tanh(x); }),
            2);
  EXPECT_LE(greatest_error(
                -10, 10, [](Float x) { return erf(x); }, [](double x) { return std::erf(x); }),
            2);
  EXPECT_LE(greatest_error(
                -86, 86, [](Float x) { return sigmoid(x); },
                [](double x) { return 1 / (1 + std::exp(-x)); }),
            3);
  EXPECT_LE(
      greatest_error(
          -80, 0, [](Float x) { return exp_less_one(x); }, [](double x) { return std::expm1(x); }),
      4);
}

TEST(Functions, OfTheEnds) {
  const float infinite = __builtin_inff(), nan = __builtin_nanf("");
  EXPECT_EQ(exp(all(-infinite))[0], 0);
  EXPECT_EQ(exp(all(infinite))[0], infinite);
  EXPECT_EQ(exp(all(0))[0], 1);
  EXPECT_TRUE(std::isnan(exp(all(nan))[0]));
  EXPECT_EQ(tanh(all(infinite))[0], 1);
  EXPECT_EQ(tanh(all(-infinite))[0], -1);
  EXPECT_TRUE(std::isnan(tanh(all(nan))[0]));
  EXPECT_EQ(erf(all(infinite))[0], 1);
  EXPECT_TRUE(std::isnan(erf(all(nan))[0]));
  EXPECT_EQ(sigmoid(all(-infinite))[0], 0);
  EXPECT_EQ(log(all(1))[0], 0);
}

TEST(Functions, OfTurns) {
  for (int i = 0; i < 1 << 16; ++i) {
    const double turn = i * 0x1p-16;
    Float cosine, sine;
    circle(all(static_cast<float>(turn)), cosine, sine);
    ASSERT_NEAR(cosine[0], std::cos(2 * M_PI * turn), 1.2e-7);
    ASSERT_NEAR(sine[0], std::sin(2 * M_PI * turn), 1.2e-7);
  }
}

}  // namespace
}  // namespace ferry::kernels::functions_test
