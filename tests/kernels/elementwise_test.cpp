#include <algorithm>
#include <limits>

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

constexpr int64_t kCounts[] = {0, 1, 15, 16, 17, 1000, 70001};

double rounding_steps(Type type) { return type == Type::f32 ? 1 : 0.51; }

TEST(Elementwise, CopyConvertsToTheNearest) {
  for (const Type from : kTypes) {
    for (const Type to : kTypes) {
      for (const int64_t count : kCounts) {
        const auto x = random_numbers(count, from, 1);
        const auto y = on_all(Numbers(x.size(), to), [&](Numbers& y_numbers) {
          return Copy{.count = count, .x = x, .y = y_numbers};
        });
        for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], rounded(x[i], to)) << i;
      }
    }
  }
}

TEST(Elementwise, CopyKeepsWhatIsNotANumberAndRoundsAtTheEdges) {
  const double infinite = std::numeric_limits<double>::infinity();
  const std::vector<double> numbers{0.0,        -0.0,       infinite,      -infinite,    65504,
                                    65519,      6.1e-5,     6.0e-5,        5.96e-8,      2.98e-8,
                                    2.99e-8,    1e-8,       3.38e38,       1.17e-38,     1e-40,
                                    1.00390625, 1.01171875, 1.00048828125, 1.00146484375};
  Numbers x(numbers, Type::f32);
  for (const Type type : {Type::bf16, Type::f16}) {
    const auto half = on_all(Numbers(x.size(), type), [&](Numbers& y) {
      return Copy{.count = static_cast<int64_t>(x.size()), .x = x, .y = y};
    });
    const auto back = on_all(x, [&](Numbers& y) {
      return Copy{.count = static_cast<int64_t>(x.size()), .x = half, .y = y};
    });
    for (size_t i = 0; i < x.size(); ++i) {
      double expected = rounded(x[i], type);
      if (type == Type::f16 && std::fabs(expected) > 65504)
        expected = std::copysign(infinite, x[i]);
      EXPECT_EQ(back[i], expected) << numbers[i] << ' ' << name_of(type);
      EXPECT_EQ(std::signbit(back[i]), std::signbit(x[i])) << numbers[i];
    }
    x.floats()[0] = std::numeric_limits<float>::quiet_NaN();
    Numbers nan(1, type), again(1, Type::f32);
    one_device(1)->run(Copy{.count = 1, .x = x, .y = nan});
    one_device(1)->run(Copy{.count = 1, .x = nan, .y = again});
    EXPECT_TRUE(std::isnan(again.floats()[0]));
    x.set(0, 0);
  }
}

TEST(Elementwise, CopyRowsTakesRowsThatLieApart) {
  for (const Type type : kTypes) {
    for (const bool accumulate : {false, true}) {
      const auto x = random_numbers(5 * 50, type, 1), before = random_numbers(5 * 40, type, 2);
      const auto y = on_all(before, [&](Numbers& to) {
        return CopyRows{.rows = 5,
                        .width = 37,
                        .x_stride = 50,
                        .y_stride = 40,
                        .x = x,
                        .y = to,
                        .accumulate = accumulate};
      });
      auto expected = before.values();
      for (size_t i = 0; i < 5 * 37; ++i) {
        auto& to = expected[i / 37 * 40 + i % 37];
        to = x[i / 37 * 50 + i % 37] + (accumulate ? to : 0);
      }
      expect_near(y, expected, rounding_steps(type), 0, name_of(type));
    }
  }
}

TEST(Elementwise, AddScaleFillAndClear) {
  for (const Type type : kTypes) {
    for (const int64_t count : kCounts) {
      const auto a = random_numbers(count, type, 1), b = random_numbers(count, type, 2);
      std::vector<double> sum, product;
      for (size_t i = 0; i < a.size(); ++i) {
        sum.push_back(a[i] + b[i]);
        product.push_back(a[i] * 3 * -0.5);
      }
      const float factor = -0.5;
      expect_near(
          on_all(a, [&](Numbers& y) { return Add{.count = count, .a = y, .b = b, .y = y}; }), sum,
          rounding_steps(type), 1e-30, "add");
      expect_near(
          on_all(a,
                 [&](Numbers& y) {
                   return Scale{
                       .count = count, .x = a, .y = y, .factor = 3, .factor_on_device = &factor};
                 }),
          product, rounding_steps(type), 0x1p-14, "scale");
      expect_near(
          on_all(a, [&](Numbers& y) { return FillConstant{.count = count, .value = 2.5, .y = y}; }),
          std::vector<double>(a.size(), 2.5), 0, 0, "fill");
      expect_near(on_all(a, [&](Numbers& y) { return Clear{.count = count, .y = y}; }),
                  std::vector<double>(a.size(), 0), 0, 0, "clear");
    }
  }
}

TEST(Elementwise, GatesOfRows) {
  const int64_t rows = 3, width = 37;
  for (const Type type : kTypes) {
    const auto x = random_numbers(rows * width, type, 1),
               dy = random_numbers(rows * width, type, 2);
    const auto logit = random_numbers(rows, Type::f32, 3);
    const auto gate = [&](int64_t row) { return 1 / (1 + std::exp(-logit[row])); };
    const auto y = on_all(x, [&](Numbers& to) {
      return GateRows{.rows = rows, .width = width, .logit = logit.floats(), .x = x, .y = to};
    });
    Numbers dlogit(3, Type::f32);
    const auto dx = on_all(x, [&](Numbers& to) {
      return GateRowsBackward{.rows = rows,
                              .width = width,
                              .logit = logit.floats(),
                              .x = x,
                              .dy = dy,
                              .dx = to,
                              .dlogit = dlogit.floats()};
    });
    std::vector<double> expected, by_x, by_logit(3);
    for (int64_t i = 0; i < rows * width; ++i) {
      const double g = gate(i / width);
      expected.push_back(g * x[i]);
      by_x.push_back(g * dy[i]);
      by_logit[static_cast<size_t>(i / width)] += dy[i] * x[i] * g * (1 - g);
    }
    expect_near(y, expected, type == Type::f32 ? 4 : 0.6, 0x1p-14, "y");
    expect_near(dx, by_x, type == Type::f32 ? 4 : 0.6, 0x1p-14, "dx");
    expect_near(dlogit, by_logit, 32, 4, "dlogit");
  }
}

TEST(Sums, EqualPlainLoops) {
  for (const Type type : kTypes) {
    for (const int64_t count : {0L, 1L, 31L, 70001L, 200000L}) {
      const auto x = random_numbers(count, type, 1), weight = random_numbers(count, Type::f32, 2);
      double squares = 0.5, weighted = 0.5, plain = 0.5;
      for (int64_t i = 0; i < count; ++i) {
        squares += x[i] * x[i];
        weighted += x[i] * weight[i];
        plain += x[i];
      }
      std::vector<double> first;
      for (auto& device : devices()) {
        std::vector<double> sums{0.5, 0.5, 0.5};
        device.kernels->run(SumOfSquares{.count = count, .x = x, .sum = &sums[0]});
        EXPECT_NEAR(sums[0], squares, 1e-12 * squares);
        if (type == Type::f32) {
          device.kernels->run(WeightedSum{
              .count = count, .x = x.floats(), .weight = weight.floats(), .sum = &sums[1]});
          device.kernels->run(WeightedSum{.count = count, .x = x.floats(), .sum = &sums[2]});
          EXPECT_NEAR(sums[1], weighted, 1e-9);
          EXPECT_NEAR(sums[2], plain, 1e-9);
        }
        EXPECT_TRUE(first.empty() || first == sums) << device.name;
        first = sums;
        if (count < 2) continue;
        double rest = 0.5;  // of elements that no pack begins with
        device.kernels->run(
            SumOfSquares{.count = count - 1, .x = ConstArray(x).from(1), .sum = &rest});
        EXPECT_NEAR(rest, squares - x[size_t{0}] * x[size_t{0}], 1e-12 * squares);
      }
    }
  }
  auto x = random_numbers(100, Type::f32, 1);
  x.floats()[71] = std::numeric_limits<float>::infinity();
  double sum = 0;
  one_device(1)->run(SumOfSquares{.count = 100, .x = x, .sum = &sum});
  EXPECT_TRUE(std::isinf(sum));
}

TEST(Sums, RowsAreAdded) {
  for (const Type type : kTypes) {
    for (const auto& [rows, width] : {std::pair{200L, 131L}, {1L, 1L}, {0L, 5L}, {70L, 64L}}) {
      const auto x = random_numbers(rows * width, type, 1),
                 before = random_numbers(width, Type::f32, 2);
      for (const bool accumulate : {true, false}) {
        const auto sum = on_all(before, [&, r = rows, w = width](Numbers& to) {
          return SumRows{.rows = r, .width = w, .x = x, .sum = {to, accumulate}};
        });
        auto expected = before.values();
        if (!accumulate) std::ranges::fill(expected, 0.0);
        for (size_t i = 0; i < x.size(); ++i) expected[i % static_cast<size_t>(width)] += x[i];
        expect_near(sum, expected, 16, 8, name_of(type));
      }
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
