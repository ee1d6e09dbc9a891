#include "ckpt/core/recipe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/random_cases.h"

namespace ferry {
namespace {

using Points = std::map<Dims, Dims>;  // output coordinates -> input coordinates

void walk(const Move& move, size_t level, Dims in, Dims out, Points& points) {
  if (level == move.loops.size()) {
    EXPECT_TRUE(points.emplace(out, in).second) << "an element is written twice";
    return;
  }
  const Loop& loop = move.loops[level];
  for (int64_t i = 0; i < loop.count; ++i) {
    walk(move, level + 1, in, out, points);
    in[loop.in_axis] += loop.in_step;
    out[loop.out_axis] += loop.out_step;
  }
}

Points points_of(const std::vector<Move>& moves) {
  Points points;
  for (const Move& move : moves) walk(move, 0, move.in_origin, move.out_origin, points);
  return points;
}

bool contains(const Box& box, const Dims& at) {
  for (size_t axis = 0; axis < at.size(); ++axis) {
    if (at[axis] < box.offset[axis] || at[axis] >= box.offset[axis] + box.size[axis]) return false;
  }
  return true;
}

// Two loops on the output's first axis, gaps between them, a transposed second axis.
Move nested(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return static_cast<int64_t>(std::uniform_int_distribution<int>(low, high)(random));
  };
  const int64_t inner = pick(1, 4), outer = pick(1, 4), columns = pick(1, 4);
  const int64_t in_step = inner + pick(0, 3), out_step = inner + pick(0, 3);
  return {0,
          {pick(0, 3), pick(0, 3)},
          {pick(0, 3), pick(0, 3)},
          {{outer, 1, in_step, 0, out_step}, {inner, 1, 1, 0, 1}, {columns, 0, 1, 1, 1}}};
}

TEST(Recipe, ClippingIsExact) {
  test::for_random_cases(2000, [](uint64_t number) {
    std::mt19937 random(static_cast<uint32_t>(number));
    const Move move = nested(random);
    std::uniform_int_distribution<int64_t> offset(-2, 12), size(0, 14);
    const Box box{{offset(random), offset(random)}, {size(random), size(random)}};
    const Points all = points_of({move});
    Points by_output, by_input;
    for (const auto& [out, in] : all) {
      if (contains(box, out)) by_output.emplace(out, in);
      if (contains(box, in)) by_input.emplace(out, in);
    }
    ASSERT_EQ(points_of(clip_output(move, box)), by_output) << to_string(box);
    ASSERT_EQ(points_of(clip_input(move, box)), by_input) << to_string(box);
  });
}

TEST(Recipe, InverseExchangesInputAndOutput) {
  test::for_random_cases(200, [](uint64_t number) {
    std::mt19937 random(static_cast<uint32_t>(number));
    const Move move = nested(random);
    const Points points = points_of({move});
    for (const auto& [out, in] : points_of({move.inverse()})) EXPECT_EQ(points.at(in), out);
  });
}

TEST(Recipe, BoundsHoldAllPoints) {
  test::for_random_cases(200, [](uint64_t number) {
    std::mt19937 random(static_cast<uint32_t>(number));
    const Move move = nested(random);
    for (const auto& [out, in] : points_of({move})) {
      EXPECT_TRUE(contains(output_bounds(move, 2), out));
      EXPECT_TRUE(contains(input_bounds(move, 2), in));
    }
  });
}

}  // namespace
}  // namespace ferry
