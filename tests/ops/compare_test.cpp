// Differences of values, by bits and within a tolerance.
#include "ops/diff/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "ops/diff/object_diff.h"
#include "ops/diff/pairing.h"

namespace ferry {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

ValueDifference of_doubles(const std::vector<double>& a, const std::vector<double>& b,
                           std::optional<double> tolerance = {}) {
  return compare(bytes_of(a), DType::f64, bytes_of(b), DType::f64, 0, {tolerance, {}});
}

TEST(Compare, CountsAndMeasures) {
  std::vector<double> a(10'000, 1.0), b = a;
  EXPECT_EQ(of_doubles(a, b).differing, 0);
  b[7000] = 1.5;
  b[9999] = -1;
  const ValueDifference result = compare(bytes_of(a), DType::f64, bytes_of(b), DType::f64, 100);
  EXPECT_EQ(result.compared, 10'000);
  EXPECT_EQ(result.differing, 2);
  EXPECT_EQ(result.first, 7100);
  EXPECT_EQ(result.first_a, 1.0);
  EXPECT_EQ(result.first_b, 1.5);
  EXPECT_EQ(result.max_absolute, 2.0);
  EXPECT_EQ(result.max_relative, 2.0);
  EXPECT_EQ(result.without, 0);
}

TEST(Compare, WithoutAToleranceBitsCount) {
  EXPECT_EQ(of_doubles({0.0}, {-0.0}).differing, 1);
  EXPECT_EQ(of_doubles({0.0}, {-0.0}).max_absolute, 0);
  EXPECT_EQ(of_doubles({kNaN}, {kNaN}).differing, 0);
  EXPECT_EQ(of_doubles({kNaN}, {-kNaN}).differing, 1);
  EXPECT_EQ(of_doubles({kNaN}, {-kNaN}).without, 1);
  EXPECT_EQ(of_doubles({0.0}, {-0.0}, 0.0).differing, 0);
  EXPECT_EQ(of_doubles({kNaN}, {-kNaN}, 0.0).differing, 0);
}

TEST(Compare, WithinATolerance) {
  EXPECT_EQ(of_doubles({1, 2, 3}, {1.25, 2.5, 3}, 0.25).differing, 1);
  EXPECT_EQ(of_doubles({kInfinity}, {kInfinity}, 0.25).differing, 0);
  const ValueDifference result = of_doubles({kNaN, kInfinity, 1}, {1, 1, kNaN}, 1e300);
  EXPECT_EQ(result.differing, 3);
  EXPECT_EQ(result.without, 3);
  EXPECT_EQ(result.max_absolute, 0);
}

TEST(Compare, WithinARelativeTolerance) {
  const auto relative = [](double a, double b, double tolerance) {
    const std::vector<double> x{a}, y{b};
    return compare(bytes_of(x), DType::f64, bytes_of(y), DType::f64, 0, {{}, tolerance}).differing;
  };
  EXPECT_EQ(relative(100, 101, 0.01), 0);
  EXPECT_EQ(relative(101, 100, 0.01), 0);
  EXPECT_EQ(relative(100, 102, 0.01), 1);
  EXPECT_EQ(relative(0, 1e-30, 0.5), 1);
  EXPECT_EQ(relative(kInfinity, 1, 1.0), 1);
  const std::vector<double> zero{0}, small{1e-30};
  EXPECT_EQ(
      compare(bytes_of(zero), DType::f64, bytes_of(small), DType::f64, 0, {1e-20, 0.5}).differing,
      0);
}

TEST(Compare, WideIntegersExactly) {
  const int64_t large = int64_t{1} << 62;
  const std::vector<int64_t> a{large + 2000}, b{large + 2100};
  const auto off = [&](std::optional<double> tolerance) {
    return compare(bytes_of(a), DType::i64, bytes_of(b), DType::i64, 0, {tolerance, {}});
  };
  EXPECT_EQ(off({}).max_absolute, 100);
  EXPECT_EQ(off({}).first_b - static_cast<long double>(large), 2100);
  EXPECT_EQ(off(99).differing, 1);
  EXPECT_EQ(off(100).differing, 0);
  const std::vector<uint64_t> most{UINT64_MAX}, less{UINT64_MAX - 1};
  EXPECT_EQ(compare(bytes_of(most), DType::u64, bytes_of(less), DType::u64, 0, {0.0, {}}).differing,
            1);
  const std::vector<uint64_t> same{static_cast<uint64_t>(a[0])};
  EXPECT_EQ(compare(bytes_of(a), DType::i64, bytes_of(same), DType::u64, 0).differing, 0);
}

TEST(Compare, AcrossTypesByValue) {
  const std::vector<float> f32{1, 2, 3.5f};
  const std::vector<double> f64{1, 2, 3.25};
  const auto result = compare(bytes_of(f32), DType::f32, bytes_of(f64), DType::f64, 0);
  EXPECT_EQ(result.compared, 3);
  EXPECT_EQ(result.differing, 1);
  EXPECT_EQ(result.first, 2);
  EXPECT_EQ(result.max_absolute, 0.25);
  const std::vector<int32_t> i32{1, 2, 3};
  EXPECT_EQ(compare(bytes_of(i32), DType::i32, bytes_of(f32), DType::f32, 0).differing, 1);
}

TEST(Compare, TypesWithoutValuesByTheirBytes) {
  const std::vector<float> a{1, 2, 3, 4}, b{1, 2, 3, 5};
  const auto result = compare(bytes_of(a), DType::c64, bytes_of(b), DType::c64, 0, {100.0, {}});
  EXPECT_EQ(result.compared, 2);
  EXPECT_EQ(result.differing, 1);
  EXPECT_EQ(result.first, 1);
  EXPECT_FALSE(result.has_values);
}

TEST(Compare, PartsJoinInAnyOrder) {
  const ValueDifference early = compare(bytes_of(std::vector<double>{0, 0}), DType::f64,
                                        bytes_of(std::vector<double>{0, 3}), DType::f64, 0);
  const ValueDifference late = compare(bytes_of(std::vector<double>{1}), DType::f64,
                                       bytes_of(std::vector<double>{2}), DType::f64, 2);
  for (const bool swap : {false, true}) {
    ValueDifference all;
    all.join(swap ? late : early);
    all.join(swap ? early : late);
    EXPECT_EQ(all.compared, 3);
    EXPECT_EQ(all.differing, 2);
    EXPECT_EQ(all.first, 1);
    EXPECT_EQ(all.first_b, 3);
    EXPECT_EQ(all.max_absolute, 3);
    EXPECT_EQ(all.max_relative, 1);
  }
}

TensorView view(const std::string& name, const Dims& shape) {
  return {name, DType::f32, shape, {{0}, {copy_all(shape)}, {}}, false, {}};
}

std::vector<std::string> names_of(const std::vector<TensorPair>& pairs) {
  std::vector<std::string> names;
  for (const TensorPair& pair : pairs) {
    names.push_back(pair.any().name + (!pair.b ? " <" : (!pair.a ? " >" : "")));
  }
  return names;
}

TEST(Pairing, ByNameThenWhatIsLeft) {
  EXPECT_EQ(
      names_of(pair_views({view("x", {2}), view("y", {2})}, {view("z", {2}), view("y", {2})})),
      (std::vector<std::string>{"x <", "y", "z >"}));
}

TEST(Pairing, TakesStacksApart) {
  const auto pairs =
      pair_views({view("d.layers.mlp.w", {3, 4, 5}), view("d.norm", {4})},
                 {view("d.norm", {4}), view("d.layers.1.mlp.w", {4, 5}),
                  view("d.layers.0.mlp.w", {4, 5}), view("d.layers.3.mlp.w", {4, 5})});
  EXPECT_EQ(names_of(pairs),
            (std::vector<std::string>{"d.layers.0.mlp.w", "d.layers.1.mlp.w", "d.layers.2.mlp.w <",
                                      "d.norm", "d.layers.3.mlp.w >"}));
  EXPECT_EQ(pairs[1].a->shape, (Dims{4, 5}));
  ASSERT_EQ(pairs[1].a->recipe.moves.size(), 1u);
  EXPECT_EQ(pairs[1].a->recipe.moves[0].in_origin, (Dims{1, 0, 0}));
  EXPECT_EQ(pairs[1].a->recipe.moves[0].out_origin, (Dims{0, 0}));
  EXPECT_EQ(pairs[1].a->recipe.moves[0].elements(), 20);
}

TEST(Pairing, LeavesStacksOfImpossibleHeightWhole) {
  EXPECT_EQ(
      names_of(pair_views({view("layers.w", {int64_t{1} << 40, 1})}, {view("layers.0.w", {1})})),
      (std::vector<std::string>{"layers.w <", "layers.0.w >"}));
}

TEST(Pairing, TakesExpertsOfLayersApart) {
  std::vector<TensorView> parts;
  for (int layer = 0; layer < 2; ++layer) {
    for (int expert = 0; expert < 3; ++expert) {
      parts.push_back(view(
          "layers." + std::to_string(layer) + ".experts." + std::to_string(expert) + ".w", {5}));
    }
  }
  for (const bool swap : {false, true}) {
    std::vector<TensorView> stack{view("layers.experts.w", {2, 3, 5})};
    const auto pairs = swap ? pair_views(parts, stack) : pair_views(stack, parts);
    ASSERT_EQ(pairs.size(), 6u);
    const TensorView& last = swap ? *pairs[5].b : *pairs[5].a;
    EXPECT_EQ(last.name, "layers.1.experts.2.w");
    EXPECT_EQ(last.recipe.moves[0].in_origin, (Dims{1, 2, 0}));
  }
}

TEST(ObjectDiff, SaysWhereValuesDiffer) {
  const auto a = nlohmann::json::parse(R"({"x": 1, "y": {"z": [1, 2], "w": "s"}, "gone": null})");
  const auto b = nlohmann::json::parse(R"({"x": 1, "y": {"z": [1, 3], "w": 5}, "new": true})");
  EXPECT_EQ(changes_between(a, a), std::vector<std::string>{});
  EXPECT_EQ(changes_between(a, b),
            (std::vector<std::string>{"gone: null / absent", "y.w: \"s\" / 5", "y.z.1: 2 / 3",
                                      "new: absent / true"}));
  EXPECT_EQ(changes_between(1, nlohmann::json::array()), std::vector<std::string>{"value: 1 / []"});
  const std::string change = changes_between(std::string(100, 'x'), 0).at(0);
  EXPECT_LT(change.size(), 60u);
}

TEST(ObjectDiff, LongValuesAreCutWhereTheyDiffer) {
  using nlohmann::json;
  const std::string same(100, 'x');
  EXPECT_EQ(changes_between(same + "1", same + "2").at(0),
            "value: ...xxxxxxxxxx1\" / ...xxxxxxxxxx2\"");
  json list = json::array(), longer = json::array();
  for (int i = 0; i < 100; ++i) list.push_back(i), longer.push_back(i);
  longer.push_back(100);
  EXPECT_EQ(changes_between(list, longer).at(0), "value: a list of 100 / a list of 101");
  EXPECT_EQ(changes_between({{"a", list}}, {{"a", 3}}).at(0), "a: a list of 100 / 3");
}

TEST(ObjectDiff, ANestingMoreIsSaidInShort) {
  const nlohmann::json state = {{"seed", std::string(100, '1')}}, in_list = {state};
  EXPECT_EQ(changes_between({{"r", in_list}}, {{"r", state}}).at(0), "r: [x] / x, of the same x");
  EXPECT_EQ(changes_between({{"r", in_list}}, {{"r", {in_list}}}).at(0),
            "r.0: x / [x], of the same x");
}

}  // namespace
}  // namespace ferry
