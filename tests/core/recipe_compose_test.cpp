#include "ckpt/core/recipe_compose.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

using InputPoint = std::pair<uint32_t, Dims>;    // of which input, where
using InputPoints = std::map<Dims, InputPoint>;  // output coordinates -> input

void walk_inputs(const Move& move, uint32_t input, size_t level, Dims in, Dims out,
                 InputPoints& points) {
  if (level == move.loops.size()) {
    EXPECT_TRUE(points.emplace(out, InputPoint(input, in)).second) << "an element is written twice";
    return;
  }
  const Loop& loop = move.loops[level];
  for (int64_t i = 0; i < loop.count; ++i) {
    walk_inputs(move, input, level + 1, in, out, points);
    in[loop.in_axis] += loop.in_step;
    out[loop.out_axis] += loop.out_step;
  }
}

InputPoints input_points_of(const Recipe& recipe) {
  InputPoints points;
  for (const Move& move : recipe.moves) {
    walk_inputs(move, recipe.inputs[move.input], 0, move.in_origin, move.out_origin, points);
  }
  return points;
}

class RandomNumbers {
 public:
  explicit RandomNumbers(uint64_t seed) : random_(static_cast<uint32_t>(seed)) {}
  int64_t operator()(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

 private:
  std::mt19937 random_;
};

// Rows (head, pair, half) of one stored tensor as (head, half, pair), transposed or not.
Recipe unrotated_rows(RandomNumbers& pick, int64_t heads, int64_t pairs, int64_t columns,
                      uint32_t stored) {
  const int row = static_cast<int>(pick(0, 1));
  Recipe recipe{{stored}, {}, {}};
  for (int64_t half = 0; half < 2; ++half) {
    Move move{0, {0, 0}, {half * pairs, 0}, {}};
    move.in_origin[row] = half;
    move.loops = {
        {heads, row, 2 * pairs, 0, 2 * pairs}, {pairs, row, 2, 0, 1}, {columns, 1 - row, 1, 1, 1}};
    recipe.moves.push_back(std::move(move));
  }
  return recipe;
}

// One of several slices along the first of three axes.
Recipe slice_of(int64_t which, int64_t rows, int64_t columns, uint32_t stored) {
  return {{stored}, {{0, {which, 0, 0}, {0, 0}, {{rows, 1, 1, 0, 1}, {columns, 2, 1, 1, 1}}}}, {}};
}

TEST(RecipeCompose, IsOneRecipeAfterTheOther) {
  test::for_random_cases(500, [](uint64_t number) {
    RandomNumbers pick(number);
    const int64_t heads = pick(1, 3), pairs = pick(1, 3), columns = pick(1, 4);
    const int64_t rows = 2 * heads * pairs;
    const std::vector<Recipe> made = {unrotated_rows(pick, heads, pairs, columns, 5),
                                      slice_of(pick(0, 2), rows, columns, 9)};
    const Box whole = Box::whole({rows, columns});
    Recipe outer{{1, 0}, {}, {{{-4, 0}, {1, 1}}}};
    for (uint32_t input = 0; input < 2; ++input) {
      // Rows by blocks, gaps between them, and columns; the inputs' outputs lie apart.
      const int64_t inner = pick(1, 3), step = inner + pick(0, 2);
      const Move move{input,
                      {pick(-1, 2), pick(-1, 1)},
                      {pick(0, 2), 100 * input},
                      {{pick(1, 3), 0, step, 0, inner + pick(0, 2)},
                       {inner, 0, 1, 0, 1},
                       {pick(1, 4), 1, 1, 1, pick(1, 2)}}};
      for (Move& part : clip_input(move, whole)) outer.moves.push_back(std::move(part));
    }
    InputPoints expected;
    for (const auto& [out, in] : input_points_of(outer)) {
      expected[out] = input_points_of(made[in.first]).at(in.second);
    }
    const Recipe composed = compose(outer, made);
    EXPECT_EQ(input_points_of(composed), expected);
    EXPECT_EQ(composed.zeros, outer.zeros);
  });
}

TEST(RecipeCompose, MoreThanMovesIsRefused) {
  RandomNumbers pick(1);
  const std::vector<Recipe> made = {unrotated_rows(pick, 1, 1, 2, 0)};
  Recipe outer{{0}, {copy_all({2, 2})}, {}};
  outer.addends.push_back({0, 1.0});
  EXPECT_THROW(compose(outer, made), Error);
}

}  // namespace
}  // namespace ferry
