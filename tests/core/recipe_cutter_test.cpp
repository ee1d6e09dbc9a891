// Parts of recipes laid out flat, against an element-by-element reading of what recipes mean.
#include "ckpt/core/recipe_cutter.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "tests/random_cases.h"

namespace ferry {
namespace {

constexpr int64_t kZero = -1;

// What each element of the output comes from: input * 1000000 + position in it, or kZero.
std::vector<int64_t> meaning(const Recipe& recipe, const Dims& shape,
                             const std::vector<Dims>& inputs) {
  const Dims strides = row_major_strides(shape);
  const auto position = [](const Dims& at, const Dims& of) {
    int64_t sum = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) sum += at[axis] * of[axis];
    return sum;
  };
  std::vector<int64_t> sources(static_cast<size_t>(element_count(shape, "output")), -2);
  for (const Move& move : recipe.moves) {
    const uint32_t entry = recipe.inputs[move.input];
    for (int64_t n = 0; n < move.elements(); ++n) {
      Dims in = move.in_origin, out = move.out_origin;
      int64_t rest = n;
      for (const Loop& loop : move.loops) {
        in[static_cast<size_t>(loop.in_axis)] += rest % loop.count * loop.in_step;
        out[static_cast<size_t>(loop.out_axis)] += rest % loop.count * loop.out_step;
        rest /= loop.count;
      }
      sources[static_cast<size_t>(position(out, strides))] =
          entry * 1000000 + position(in, row_major_strides(inputs[entry]));
    }
  }
  for (const Box& zeros : recipe.zeros) {
    for (int64_t n = 0; n < element_count(zeros.size, "zeros"); ++n) {
      Dims at = zeros.offset;
      int64_t rest = n;
      for (size_t axis = at.size(); axis-- > 0;) {
        at[axis] += rest % zeros.size[axis];
        rest /= zeros.size[axis];
      }
      sources[static_cast<size_t>(position(at, strides))] = kZero;
    }
  }
  return sources;
}

// Elements of a box of a tensor, row-major.
std::vector<int64_t> cut(const std::vector<int64_t>& tensor, const Dims& shape, const Box& box) {
  const Dims strides = row_major_strides(shape);
  std::vector<int64_t> elements;
  for (int64_t n = 0; n < element_count(box.size, "box"); ++n) {
    int64_t rest = n, at = 0;
    for (size_t axis = shape.size(); axis-- > 0;) {
      at += (box.offset[axis] + rest % box.size[axis]) * strides[axis];
      rest /= box.size[axis];
    }
    elements.push_back(tensor[static_cast<size_t>(at)]);
  }
  return elements;
}

// Layers of one tensor each, stacked; in each, query groups interleaved from two inputs, and a last
// row of zeros.
struct Interleaved {
  static constexpr int64_t kLayers = 6, kGroups = 3, kColumns = 4;
  Dims shape{kLayers, kGroups * 3 + 1, kColumns};
  std::vector<Dims> inputs;
  Recipe recipe;

  Interleaved() {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      inputs.push_back({kGroups * 2, kColumns});
      inputs.push_back({kGroups, kColumns});
      for (uint32_t part = 0; part < 2; ++part) {
        const auto input = static_cast<uint32_t>(recipe.inputs.size());
        recipe.inputs.push_back(input);
        const int64_t rows = part == 0 ? 2 : 1;
        recipe.moves.push_back(
            {input,
             {0, 0},
             {layer, part == 0 ? 0 : 2, 0},
             {{kGroups, 0, rows, 1, 3}, {rows, 0, 1, 1, 1}, {kColumns, 1, 1, 2, 1}}});
      }
      recipe.zeros.push_back({{layer, kGroups * 3, 0}, {1, 1, kColumns}});
    }
  }
};

TEST(FlatRecipe, HoldsBoxesOneAfterAnother) {
  const Interleaved from;
  const std::vector<int64_t> whole = meaning(from.recipe, from.shape, from.inputs);
  ASSERT_EQ(std::count(whole.begin(), whole.end(), -2), 0);
  const RecipeCutter cutter(from.recipe, from.shape);
  test::for_random_cases(300, [&](uint64_t number) {
    std::mt19937 random(static_cast<uint32_t>(number));
    FlatRecipe flat;
    std::vector<int64_t> expected;
    for (int part = 0; part < 3; ++part) {
      Box box;
      for (const int64_t extent : from.shape) {
        const int64_t begin = static_cast<int64_t>(random()) % extent;
        box.offset.push_back(begin);
        box.size.push_back(1 + static_cast<int64_t>(random()) % (extent - begin));
      }
      flat.append(cutter, {box});
      const std::vector<int64_t> elements = cut(whole, from.shape, box);
      expected.insert(expected.end(), elements.begin(), elements.end());
      flat.append_zeros(part);
      expected.insert(expected.end(), static_cast<size_t>(part), kZero);
    }
    ASSERT_EQ(flat.elements(), static_cast<int64_t>(expected.size()));
    ASSERT_EQ(meaning(flat.recipe(), {flat.elements()}, from.inputs), expected);
  });
}

// Runs of boxes, as an optimizer's shards are, and boxes as tensors of their own.
TEST(RecipeCutter, CutsShards) {
  const Interleaved from;
  const std::vector<int64_t> whole = meaning(from.recipe, from.shape, from.inputs);
  const RecipeCutter cutter(from.recipe, from.shape);
  test::for_random_cases(300, [&](uint64_t number) {
    std::mt19937 random(static_cast<uint32_t>(number));
    Shard shard;
    for (const int64_t extent : from.shape) {
      const int64_t begin = static_cast<int64_t>(random()) % extent;
      shard.box.offset.push_back(begin);
      shard.box.size.push_back(1 + static_cast<int64_t>(random()) % (extent - begin));
    }
    std::vector<int64_t> expected = cut(whole, from.shape, shard.box);
    ASSERT_EQ(meaning(cutter.cut(shard), shard.box.size, from.inputs), expected);
    const auto elements = static_cast<int64_t>(expected.size());
    shard.run_begin = static_cast<int64_t>(random()) % elements;
    shard.run_count = 1 + static_cast<int64_t>(random()) % (elements - shard.run_begin);
    expected = {expected.begin() + shard.run_begin,
                expected.begin() + shard.run_begin + shard.run_count};
    ASSERT_EQ(meaning(cutter.cut(shard), {shard.run_count}, from.inputs), expected);
  });
}

TEST(FlatRecipe, IsCompact) {
  // A column slice of a stacked tensor is one nest of loops, however many layers and rows.
  const Dims shape{126, 16384, 53248};
  const Recipe whole{{0}, {copy_all(shape)}, {}};
  FlatRecipe flat;
  flat.append(RecipeCutter(whole, shape), {{{7, 0, 3328}, {1, 16384, 3328}}});
  ASSERT_EQ(flat.recipe().moves.size(), 1u);
  EXPECT_EQ(flat.recipe().moves[0].loops.size(), 2u);
  EXPECT_EQ(flat.elements(), 16384 * 3328);
}

TEST(FlatRecipe, KeepsWhatIsAddedToItsInputs) {
  Recipe scaled{{5}, {copy_all({4, 4})}, {}};
  scaled.addends = {{0, 1.5}};
  const Recipe plain{{4}, {copy_all({4, 4})}, {}};
  FlatRecipe flat;
  flat.append(RecipeCutter(plain, {4, 4}), {{{0, 0}, {4, 4}}});
  flat.append(RecipeCutter(scaled, {4, 4}), {{{0, 0}, {2, 4}}});
  flat.append(RecipeCutter(scaled, {4, 4}), {{{2, 0}, {2, 4}}});
  const Recipe recipe = std::move(flat).take();
  EXPECT_EQ(recipe.inputs, (std::vector<uint32_t>{4, 5}));
  ASSERT_EQ(recipe.addends.size(), 1u);
  EXPECT_EQ(recipe.addends[0].input, 1u);
  EXPECT_EQ(recipe.addends[0].value, 1.5);
}

}  // namespace
}  // namespace ferry
