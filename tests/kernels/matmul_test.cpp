#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

struct Case {
  int64_t m, n, k;
  bool a_transposed, b_transposed, accumulate, has_bias;
};

std::vector<double> expected(const Case& x, const Numbers& a_numbers, const Numbers& b_numbers,
                             const Numbers& c, const Numbers& bias) {
  const auto a_values = a_numbers.values(), b_values = b_numbers.values();
  const double *a = a_values.data(), *b = b_values.data();
  std::vector<double> result;
  for (int64_t i = 0; i < x.m; ++i) {
    for (int64_t j = 0; j < x.n; ++j) {
      double sum = x.accumulate ? c[i * x.n + j] : x.has_bias ? bias[j] : 0;
      for (int64_t s = 0; s < x.k; ++s) {
        sum += a[x.a_transposed ? s * x.m + i : i * x.k + s] *
               b[x.b_transposed ? j * x.k + s : s * x.n + j];
      }
      result.push_back(sum);
    }
  }
  return result;
}

void check(Kernels& kernels, const Case& x, Type type, Type result, const std::string& name) {
  const auto a = random_numbers(x.m * x.k, type, 1), b = random_numbers(x.k * x.n, type, 2);
  const auto bias = random_numbers(x.n, type, 3);
  const auto before = random_numbers(x.m * x.n, result, 4);
  const auto wanted = expected(x, a, b, before, bias);
  std::string bits;
  for (int time = 0; time < 2; ++time) {
    auto c = before;
    kernels.run(Matmul{.m = x.m,
                       .n = x.n,
                       .k = x.k,
                       .a = a,
                       .b = b,
                       .c = c,
                       .a_transposed = x.a_transposed,
                       .b_transposed = x.b_transposed,
                       .accumulate = x.accumulate,
                       .bias = x.has_bias ? ConstArray(bias) : ConstArray()});
    const auto size = std::sqrt(static_cast<double>(x.k) + 1);
    const double slack = type == Type::f32 ? 1 : product_slack();
    expect_near(c, wanted, result == Type::f32 ? 16 * slack : 0.6, size,
                name + " " + name_of(type) + " to " + name_of(result) + " m " +
                    std::to_string(x.m) + " n " + std::to_string(x.n) + " k " +
                    std::to_string(x.k));
    EXPECT_TRUE(time == 0 || bits == c.bits()) << name;
    bits = c.bits();
  }
}

TEST(Matmul, EqualsAPlainLoop) {
  const Case cases[] = {
      {5, 7, 3, false, false, false, false},     {1, 1, 1, false, true, true, false},
      {64, 48, 80, false, true, false, true},    {33, 35, 17, true, false, true, false},
      {6, 1024, 10, false, false, false, false}, {3, 5, 0, false, true, false, true},
      {3, 5, 0, false, true, true, false},       {0, 5, 3, false, true, false, false},
      {2, 9, 2500, false, false, false, true},   {7, 3, 3000, true, false, true, false},
      {18, 33, 2100, true, true, true, false},
  };
  for (auto& device : devices()) {
    for (const auto& x : cases) {
      for (const Type type : kTypes) {
        check(*device.kernels, x, type, type, device.name);
        check(*device.kernels, x, type, Type::f32, device.name);
      }
    }
  }
}

// More shapes than are kept prepared.
TEST(Matmul, TakesAnyNumberOfShapes) {
  const auto kernels = one_device(1);
  for (int64_t k = 1; k < 1100; ++k) {
    const Numbers a(std::vector<double>(static_cast<size_t>(k), 1), Type::f32);
    Numbers c(1, Type::f32);
    kernels->run(Matmul{.m = 1, .n = 1, .k = k, .a = a, .b = a, .c = c});
    ASSERT_EQ(c[size_t{0}], static_cast<double>(k));
  }
}

TEST(GroupedMatmul, EqualsAProductForEachGroup) {
  const int64_t n = 24, k = 40;
  const std::vector<int64_t> offsets{0, 70, 70, 71, 200};
  const auto groups = offsets.size() - 1;
  for (auto& device : devices()) {
    for (const Type type : kTypes) {
      const auto a = random_numbers(200 * k, type, 1);
      std::vector<Numbers> weights, biases;
      std::vector<ConstArray> b, bias;
      for (unsigned g = 0; g < groups; ++g) {
        weights.push_back(random_numbers(n * k, type, 10 + g));
        biases.push_back(random_numbers(n, type, 20 + g));
      }
      for (size_t g = 0; g < groups; ++g) {
        b.emplace_back(weights[g]);
        bias.emplace_back(biases[g]);
      }
      Numbers c(200 * n, type);
      device.kernels->run(GroupedMatmul{.n = n,
                                        .k = k,
                                        .rows = 200,
                                        .offsets = offsets.data(),
                                        .a = a,
                                        .b = b,
                                        .c = c,
                                        .b_transposed = true,
                                        .bias = bias});
      std::vector<double> sums;
      for (size_t g = 0; g < groups; ++g) {
        for (int64_t row = offsets[g]; row < offsets[g + 1]; ++row) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = biases[g][j];
            for (int64_t s = 0; s < k; ++s) sum += a[row * k + s] * weights[g][j * k + s];
            sums.push_back(sum);
          }
        }
      }
      expect_near(c, sums, type == Type::f32 ? 16 : 0.6, 7, device.name + name_of(type));
    }
  }
}

TEST(GroupedMatmulGradient, AddsAProductForEachGroup) {
  const int64_t m = 24, n = 40;
  const std::vector<int64_t> offsets{0, 70, 70, 71, 200};
  const auto groups = offsets.size() - 1;
  for (auto& device : devices()) {
    for (const Type type : kTypes) {
      const auto a = random_numbers(200 * m, type, 1), b = random_numbers(200 * n, type, 2);
      std::vector<Numbers> sums;
      std::vector<Array> c;
      for (unsigned g = 0; g < groups; ++g) sums.push_back(random_numbers(m * n, Type::f32, g));
      const auto before = sums;
      for (auto& sum : sums) c.push_back(sum.array());
      device.kernels->run(GroupedMatmulGradient{
          .m = m, .n = n, .rows = 200, .offsets = offsets.data(), .a = a, .b = b, .c = c});
      for (size_t g = 0; g < groups; ++g) {
        auto wanted = before[g].values();
        for (int64_t row = offsets[g]; row < offsets[g + 1]; ++row) {
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              wanted[static_cast<size_t>(i * n + j)] += a[row * m + i] * b[row * n + j];
            }
          }
        }
        expect_near(sums[g], wanted, 16, 12, device.name + name_of(type));
      }
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
