// Biases of groups of rows: their sums and gradients are linear, so that plain loops are the truth.
#include <algorithm>

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

struct BiasProblem {
  std::vector<int64_t> offsets;
  int64_t width;
  bool has_scale;
  Numbers x, dy, scale;
  std::vector<Numbers> biases;
  std::vector<ConstArray> bias;

  BiasProblem(std::vector<int64_t> o, int64_t w, bool s, Type type)
      : offsets(std::move(o)), width(w), has_scale(s) {
    x = random_numbers(rows() * width, type, 1);
    dy = random_numbers(rows() * width, type, 2);
    scale = random_numbers(rows(), Type::f32, 3);
    for (unsigned g = 0; g < groups(); ++g) biases.push_back(random_numbers(width, type, 10 + g));
    bias.assign(biases.begin(), biases.end());
  }
  size_t groups() const { return offsets.size() - 1; }
  int64_t rows() const { return offsets.back(); }
  double factor(int64_t row) const { return has_scale ? scale[row] : 1; }
  const float* row_scale() const { return has_scale ? scale.floats() : nullptr; }
  /// Calls f(group, row, column, element).
  template <typename F>
  void each(const F& f) const {
    for (size_t g = 0; g < groups(); ++g) {
      for (int64_t row = offsets[g]; row < offsets[g + 1]; ++row) {
        for (int64_t i = 0; i < width; ++i) f(g, row, i, row * width + i);
      }
    }
  }
};

std::vector<BiasProblem> bias_problems(Type type) {
  std::vector<BiasProblem> all;
  all.emplace_back(std::vector<int64_t>{0, 70, 70, 71, 200}, 24, true, type);
  all.emplace_back(std::vector<int64_t>{0, 0, 300, 300}, 37, false, type);
  all.emplace_back(std::vector<int64_t>{0, 0}, 8, true, type);
  all.emplace_back(std::vector<int64_t>{0}, 8, true, type);
  std::vector<int64_t> many{0};  // more than one launch of a GPU takes
  for (int64_t g = 0; g < 300; ++g) many.push_back(many.back() + g * 7 % 5);
  all.emplace_back(many, 16, true, type);
  return all;
}

TEST(GroupedBias, IsAddedToTheRowsOfItsGroup) {
  for (const Type type : kTypes) {
    for (const auto& p : bias_problems(type)) {
      const auto y = on_all(p.x, [&](Numbers& to) {
        return GroupedBias{.width = p.width,
                           .rows = p.rows(),
                           .offsets = p.offsets.data(),
                           .bias = p.bias,
                           .row_scale = p.row_scale(),
                           .y = to};
      });
      auto expected = p.x.values();
      p.each([&](size_t g, int64_t row, int64_t i, int64_t at) {
        expected[static_cast<size_t>(at)] += p.factor(row) * p.biases[g][i];
      });
      expect_near(y, expected, 0.6 + (type == Type::f32), 2, name_of(type));
    }
  }
}

TEST(GroupedBias, HasTheGradientsOfAPlainLoop) {
  for (const Type type : kTypes) {
    for (const auto& p : bias_problems(type)) {
      for (const bool accumulate : {true, false}) {
        std::vector<Numbers> before;
        for (unsigned g = 0; g < p.groups(); ++g) {
          before.push_back(random_numbers(p.width, Type::f32, 40 + g));
        }
        std::vector<std::vector<double>> expected;
        for (const auto& each : before) {
          expected.push_back(accumulate ? each.values() : std::vector<double>(each.size()));
        }
        std::vector<double> by_scale(static_cast<size_t>(p.rows()), 0.5);
        p.each([&](size_t g, int64_t row, int64_t i, int64_t at) {
          expected[g][static_cast<size_t>(i)] += p.factor(row) * p.dy[at];
          by_scale[static_cast<size_t>(row)] += p.biases[g][i] * p.dy[at];
        });
        std::vector<Numbers> sums;
        std::vector<Array> arrays;
        const Numbers begin(std::vector<double>(by_scale.size(), 0.5), Type::f32);
        const auto dscale = on_all(begin, [&](Numbers& to) {
          sums.clear();
          for (const auto& each : before) sums.push_back(each);
          arrays.clear();
          for (auto& each : sums) arrays.push_back(each.array());
          return GroupedBiasGradient{.width = p.width,
                                     .rows = p.rows(),
                                     .offsets = p.offsets.data(),
                                     .dy = p.dy,
                                     .row_scale = p.row_scale(),
                                     .dbias = arrays,
                                     .accumulate = accumulate,
                                     .bias = p.bias,
                                     .drow_scale = to.floats()};
        });
        expect_near(dscale, by_scale, 32, 4, name_of(type));
        for (size_t g = 0; g < p.groups(); ++g) {
          expect_near(sums[g], expected[g], 32, 20, name_of(type));
        }
      }
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
