#include <algorithm>
#include <array>

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

struct ProductCase {
  int64_t m, n, k;
  bool a_transposed, b_transposed, accumulate, has_bias;
};

std::vector<double> expected(const ProductCase& x, const Numbers& a_numbers,
                             const Numbers& b_numbers, const Numbers& c, const Numbers& bias) {
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

void check(Kernels& kernels, const ProductCase& x, Type type, Type result,
           const std::string& name) {
  const auto a = random_numbers(x.m * x.k, type, 1), b = random_numbers(x.k * x.n, type, 2);
  const auto bias = random_numbers(x.n, type, 3);
  const auto before = random_numbers(x.m * x.n, result, 4);
  const auto reference = expected(x, a, b, before, bias);
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
    expect_near(c, reference, result == Type::f32 ? 16 * slack : 0.6, size,
                name + " " + name_of(type) + " to " + name_of(result) + " m " +
                    std::to_string(x.m) + " n " + std::to_string(x.n) + " k " +
                    std::to_string(x.k));
    EXPECT_TRUE(time == 0 || bits == c.bits()) << name;
    bits = c.bits();
  }
}

TEST(Matmul, EqualsAPlainLoop) {
  const ProductCase cases[] = {
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

TEST(Matmul, GivesItsResultToAnActivationFunction) {
  for (auto& device : devices()) {
    for (const auto& [m, n, k] : {std::array{33, 48, 64}, {128, 256, 64}, {5, 7, 3}}) {
      for (const Type type : kTypes) {
        for (const auto kind : {Activation::gelu_tanh, Activation::gelu}) {
          for (const bool has_bias : {true, false}) {
            const auto a = random_numbers(m * k, type, 1), b = random_numbers(n * k, type, 2),
                       bias = random_numbers(n, type, 3);
            Numbers c(static_cast<size_t>(m * n), type), activated = c, reference = c;
            device.kernels->run(Matmul{.m = m,
                                       .n = n,
                                       .k = k,
                                       .a = a,
                                       .b = b,
                                       .c = c,
                                       .b_transposed = true,
                                       .bias = has_bias ? ConstArray(bias) : ConstArray(),
                                       .activation = kind,
                                       .activated = activated});
            const ProductCase plain{m, n, k, false, true, false, has_bias};
            const auto name = device.name + name_of(type);
            const auto size = std::sqrt(static_cast<double>(k));
            const double slack = type == Type::f32 ? 16 * product_slack() : 0.6;
            expect_near(c, expected(plain, a, b, c, bias), slack, size, name);
            device.kernels->run(
                ActivationForward{.kind = kind, .rows = m, .width = n, .x = c, .y = reference});
            expect_near(activated, reference.values(), type == Type::f32 ? 1 : 1.2, size, name);
          }
        }
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

/// Groups of rows, and the sizes of what they are multiplied with.
struct Groups {
  std::vector<int64_t> offsets;
  int64_t n, k;

  size_t count() const { return offsets.size() - 1; }
  int64_t rows() const { return offsets.back(); }
};

std::vector<Groups> all_groups() {
  std::vector<Groups> all{
      {{0, 70, 70, 71, 200}, 24, 40},
      {{0, 127, 256, 256, 257, 545, 802, 802, 807}, 328, 72},  // any numbers of rows
      {{0, 0, 0, 530, 530}, 72, 328},                          // all rows in one group
      {{0, 1, 3, 6, 10, 15, 31, 47, 64, 97}, 8, 8},
      {{0, 33, 80}, 13, 7},  // sizes that no engine takes
      {{0}, 64, 72},
  };
  for (int64_t g = 0; g < 300; ++g) all.back().offsets.push_back(all.back().rows() + g * 7 % 5);
  return all;
}

std::vector<std::vector<double>> values_of(const std::vector<Numbers>& all) {
  std::vector<std::vector<double>> values;
  for (const auto& numbers : all) values.push_back(numbers.values());
  return values;
}

std::vector<double> expected(const Groups& x, const Numbers& a_numbers,
                             const std::vector<Numbers>& b_numbers, bool b_transposed) {
  const auto a_values = a_numbers.values();
  const auto b_values = values_of(b_numbers);
  std::vector<double> result;
  for (size_t g = 0; g < x.count(); ++g) {
    const double* const b = b_values[g].data();
    for (int64_t row = x.offsets[g]; row < x.offsets[g + 1]; ++row) {
      const double* const a = a_values.data() + row * x.k;
      for (int64_t j = 0; j < x.n; ++j) {
        double sum = 0;
        for (int64_t s = 0; s < x.k; ++s) sum += a[s] * b[b_transposed ? j * x.k + s : s * x.n + j];
        result.push_back(sum);
      }
    }
  }
  return result;
}

void check(const Groups& x, Type type, bool b_transposed) {
  const auto a = random_numbers(x.rows() * x.k, type, 1);
  std::vector<Numbers> weights;
  for (unsigned g = 0; g < x.count(); ++g) {
    weights.push_back(random_numbers(x.n * x.k, type, 10 + g));
  }
  const auto reference = expected(x, a, weights, b_transposed);
  const std::vector<ConstArray> b(weights.begin(), weights.end());
  for (auto& device : devices()) {
    std::string bits;
    for (int time = 0; time < 2; ++time) {
      Numbers c(reference.size(), type);
      device.kernels->run(GroupedMatmul{.n = x.n,
                                        .k = x.k,
                                        .rows = x.rows(),
                                        .offsets = x.offsets.data(),
                                        .a = a,
                                        .b = b,
                                        .c = c,
                                        .b_transposed = b_transposed});
      expect_near(c, reference, type == Type::f32 ? 32 : 0.6,
                  std::sqrt(static_cast<double>(x.k)) + 1,
                  device.name + " " + name_of(type) + " n " + std::to_string(x.n) + " k " +
                      std::to_string(x.k) + (b_transposed ? " transposed" : ""));
      EXPECT_TRUE(time == 0 || bits == c.bits()) << device.name;
      bits = c.bits();
    }
  }
}

TEST(GroupedMatmul, EqualsAProductForEachGroup) {
  for (const auto& groups : all_groups()) {
    for (const Type type : kTypes) {
      for (const bool b_transposed : {true, false}) {
        check(groups, type, b_transposed);
      }
    }
  }
}

std::vector<double> expected_gradient(const Groups& x, size_t group, const std::vector<double>& a,
                                      const std::vector<double>& b, const Numbers& before,
                                      bool accumulate) {
  auto reference = before.values();
  if (!accumulate) std::ranges::fill(reference, 0.0);
  for (int64_t row = x.offsets[group]; row < x.offsets[group + 1]; ++row) {
    for (int64_t i = 0; i < x.k; ++i) {
      for (int64_t j = 0; j < x.n; ++j) {
        reference[static_cast<size_t>(i * x.n + j)] +=
            a[static_cast<size_t>(row * x.k + i)] * b[static_cast<size_t>(row * x.n + j)];
      }
    }
  }
  return reference;
}

void check_gradient(const Groups& x, Type type, Type result, bool accumulate) {
  const auto a = random_numbers(x.rows() * x.k, type, 1);
  const auto b = random_numbers(x.rows() * x.n, type, 2);
  const auto a_values = a.values(), b_values = b.values();
  std::vector<Numbers> before;
  for (unsigned g = 0; g < x.count(); ++g) {
    before.push_back(random_numbers(x.k * x.n, result, 10 + g));
  }
  std::vector<std::vector<double>> reference;
  for (size_t g = 0; g < x.count(); ++g) {
    reference.push_back(expected_gradient(x, g, a_values, b_values, before[g], accumulate));
  }
  for (auto& device : devices()) {
    std::string bits;
    for (int time = 0; time < 2; ++time) {
      auto sums = before;
      std::vector<Array> c;
      for (auto& sum : sums) c.push_back(sum.array());
      device.kernels->run(GroupedMatmulGradient{.m = x.k,
                                                .n = x.n,
                                                .rows = x.rows(),
                                                .offsets = x.offsets.data(),
                                                .a = a,
                                                .b = b,
                                                .c = c,
                                                .accumulate = accumulate});
      std::string all_bits;
      for (size_t g = 0; g < x.count(); ++g) {
        const auto rows = static_cast<double>(x.offsets[g + 1] - x.offsets[g]);
        expect_near(sums[g], reference[g], result == Type::f32 ? 32 : 1.1, std::sqrt(rows) + 4,
                    device.name + " " + name_of(type) + " to " + name_of(result) + ", group " +
                        std::to_string(g) + " of " + std::to_string(x.count()) +
                        (accumulate ? ", added" : ""));
        all_bits += sums[g].bits();
      }
      EXPECT_TRUE(time == 0 || bits == all_bits) << device.name;
      bits = all_bits;
    }
  }
}

TEST(GroupedMatmulGradient, AddsAProductForEachGroup) {
  for (const auto& groups : all_groups()) {
    for (const Type type : kTypes) {
      for (const bool accumulate : {true, false}) {
        check_gradient(groups, type, Type::f32, accumulate);
        if (type != Type::f32) check_gradient(groups, type, type, accumulate);
      }
    }
  }
}

// A group's kernel also reads rows of its neighbour.
TEST(GroupedMatmulGradient, NoNumbersOfAGroupStayThere) {
  const Groups x{{0, 37, 74, 111}, 72, 136};
  for (auto& device : devices()) {
    for (const Type type : {Type::f32, Type::bf16}) {
      auto a = random_numbers(x.rows() * x.k, type, 1), b = random_numbers(x.rows() * x.n, type, 2);
      for (int64_t i = 37 * x.k; i < 74 * x.k; ++i) a.set(static_cast<size_t>(i), NAN);
      for (int64_t i = 37 * x.n; i < 74 * x.n; ++i) b.set(static_cast<size_t>(i), INFINITY);
      std::vector<Numbers> sums(3, random_numbers(x.k * x.n, Type::f32, 3));
      const std::vector<Array> c(sums.begin(), sums.end());
      device.kernels->run(GroupedMatmulGradient{.m = x.k,
                                                .n = x.n,
                                                .rows = x.rows(),
                                                .offsets = x.offsets.data(),
                                                .a = a,
                                                .b = b,
                                                .c = c});
      for (size_t i = 0; i < sums[0].size(); ++i) {
        ASSERT_TRUE(std::isfinite(sums[0][i]) && std::isfinite(sums[2][i])) << device.name;
        ASSERT_TRUE(std::isnan(sums[1][i])) << device.name;
      }
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
