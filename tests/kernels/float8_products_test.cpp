// Products of matrices of 8-bit numbers. A processor adds in fp32; what a GPU loses is worked out.
#include "tests/kernels/float8_sums.h"

namespace ferry::kernels {
namespace {

struct Float8Product {
  int64_t m, n, k;
  Float8 a, b;
  bool accumulate, has_bias, fast;
  int64_t place = 0;  // of the product's first element, in aligned memory
};

const Float8Product kCases[] = {
    {16, 16, 16, Float8::e4m3, Float8::e4m3, false, false, true},
    {48, 32, 80, Float8::e4m3, Float8::e4m3, false, true, true},
    {64, 96, 128, Float8::e5m2, Float8::e4m3, false, false, false},
    {32, 48, 64, Float8::e5m2, Float8::e4m3, true, false, false},
    {128, 64, 512, Float8::e4m3, Float8::e5m2, false, false, true},
    {16, 160, 2064, Float8::e4m3, Float8::e4m3, true, false, false},
    {48, 32, 64, Float8::e5m2, Float8::e4m3, true, false, false, 1},
    {32, 48, 64, Float8::e5m2, Float8::e4m3, false, false, false, 3},
};

/// Two factors, and all elements of their product by row. Without `fast` a GPU adds 128 products at
/// a time.
struct Factors {
  std::vector<uint8_t> a, b;
  std::vector<Sum> sums;

  Factors(const Float8Product& x, Kind kind)
      : a(random_codes(x.m * x.k, x.a, kind, 1)), b(random_codes(x.n * x.k, x.b, kind, 2)) {
    const auto k = static_cast<size_t>(x.k);
    const auto left = values_of(a, x.a), right = values_of(b, x.b);
    std::vector<double> products(k);
    for (size_t i = 0; i < a.size(); i += k) {
      for (size_t j = 0; j < b.size(); j += k) {
        for (size_t s = 0; s < k; ++s) products[s] = left[i + s] * right[j + s];
        sums.push_back(sum_of(products, x.fast ? k : 128));
      }
    }
  }
};

void check(Kernels& kernels, const Float8Product& x, const Factors& factors, Type result,
           const std::string& name) {
  const OnDevice<uint8_t> a(kernels, factors.a), b(kernels, factors.b);
  const Scales scales(kernels, {scale_by(3), scale_by(0.5)});
  const auto bias = random_numbers(x.n, Type::bf16, 3);
  const auto before = random_numbers(x.place + x.m * x.n, result, 4);
  const bool is_gpu = product_slack() > 1;
  std::string bits;
  for (int time = 0; time < 2; ++time) {
    auto c = before;
    kernels.run(Float8Matmul{.m = x.m,
                             .n = x.n,
                             .k = x.k,
                             .a = {a.data(), x.a, scales.data()},
                             .b = {b.data(), x.b, scales.data() + 1},
                             .c = c.array().from(x.place),
                             .accumulate = x.accumulate,
                             .fast = x.fast,
                             .bias = x.has_bias ? ConstArray(bias) : ConstArray()});
    for (int64_t i = 0; i < x.m * x.n; ++i) {
      const Sum& sum = factors.sums[static_cast<size_t>(i)];
      const double product = sum.value * (2.0 / 3);
      const double expected =
          product + (x.accumulate ? before[x.place + i] : 0) + (x.has_bias ? bias[i % x.n] : 0);
      double size = std::max(std::fabs(expected), 64 * std::sqrt(static_cast<double>(x.k)));
      // cuBLASLt rounds a product before it adds it to what is there.
      if (is_gpu && x.accumulate && result != Type::f32) size += std::fabs(product);
      const double rounding = (result == Type::f32 ? 32 : 0.6) * step_of(result) * size;
      ASSERT_NEAR(c[x.place + i], expected, rounding + (is_gpu ? sum.loss * (2.0 / 3) : 0))
          << name << " to " << name_of(result) << ", k " << x.k << ", element " << i;
    }
    EXPECT_TRUE(time == 0 || bits == c.bits()) << name;
    bits = c.bits();
  }
}

void check_cases(Kind kind) {
  const auto all = devices();
  for (const Float8Product& x : kCases) {
    const Factors factors(x, kind);
    for (const Sum& sum : factors.sums) EXPECT_TRUE(kind == Kind::any || sum.loss == 0);
    for (auto& device : all) {
      if (!device.kernels->has_float8()) GTEST_SKIP() << device.name << " has no such products";
      check(*device.kernels, x, factors, Type::bf16, device.name);
      check(*device.kernels, x, factors, Type::f32, device.name);
    }
  }
}

TEST(Float8, ProductsEqualAPlainLoop) { check_cases(Kind::any); }

// They take fewer bits than a GPU's sums have: one missing product is found there, too.
TEST(Float8, ProductsOfWholeNumbersLoseNothing) { check_cases(Kind::whole); }

// What is not a number is found in the product.
TEST(Float8, ProductsOfNaNAreNaN) {
  for (auto& device : devices()) {
    if (!device.kernels->has_float8()) GTEST_SKIP() << device.name << " has no such products";
    for (const Float8 format : kFormats) {
      std::vector<uint8_t> codes(16 * 16, 0x30);
      codes[37] = 0x7F;
      const OnDevice<uint8_t> a(*device.kernels, codes);
      const OnDevice<uint8_t> b(*device.kernels, std::vector<uint8_t>(16 * 16, 0x30));
      const Scales scale(*device.kernels, {scale_by(1)});
      const Numbers c(16 * 16, Type::f32);
      device.kernels->run(Float8Matmul{.m = 16,
                                       .n = 16,
                                       .k = 16,
                                       .a = {a.data(), format, scale.data()},
                                       .b = {b.data(), Float8::e4m3, scale.data()},
                                       .c = c});
      for (int64_t i = 0; i < 256; ++i) {
        EXPECT_EQ(std::isnan(c[i]), i / 16 == 2) << device.name << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
