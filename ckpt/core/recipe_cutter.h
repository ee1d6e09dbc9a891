// Recipes put together from parts of other recipes.
//
// Some formats store many tensors one after another in one row of elements (flat optimizer
// buffers), others a part of a tensor as a tensor of its own (rank files), and a process may have
// a part of a plan to do. All are shards of tensors that recipes make.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/box_index.h"
#include "ckpt/core/recipe.h"

namespace ferry {

/// Finds what writes a part of a recipe's output. Keeps a reference to the recipe.
class RecipeCutter {
 public:
  /// `shape`: of what the recipe writes.
  RecipeCutter(const Recipe& recipe, const Dims& shape);

  const Recipe& recipe() const noexcept { return *recipe_; }
  /// The parts of the recipe's moves and zeros that write `box`, which is inside the shape.
  std::vector<Move> moves(const Box& box) const;
  std::vector<Box> zeros(const Box& box) const;
  /// The recipe of a tensor that holds the elements of `shard` alone: of the shape of its box, or
  /// of one axis where it is a run.
  Recipe cut(const Shard& shard) const;

 private:
  const Recipe* recipe_;
  BoxIndex moves_, zeros_;  // where there are many
};

/// A recipe under construction, whose output has one axis.
class FlatRecipe {
 public:
  int64_t elements() const noexcept { return elements_; }
  const Recipe& recipe() const noexcept { return recipe_; }
  Recipe take() && { return std::move(recipe_); }

  /// The elements of `shard` of what `from` makes, in row-major order, after all that is there.
  /// Returns how many moves there were before.
  size_t append(const RecipeCutter& from, const Shard& shard);
  void append_zeros(int64_t count);

 private:
  uint32_t input(const Recipe& from, uint32_t input);

  Recipe recipe_;
  std::unordered_map<uint32_t, uint32_t> inputs_;  // source entry -> position in recipe_.inputs
  int64_t elements_ = 0;
};

}  // namespace ferry
