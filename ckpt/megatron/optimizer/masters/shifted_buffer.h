// Where the elements of parameters were put that were cut out of a flat buffer at the wrong places.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ckpt/core/recipe.h"
#include "ckpt/megatron/optimizer/bucket_optimizer.h"

namespace ferry {

/// Elements of a parameter's optimizer state, and where they were stored.
struct ShiftedPart {
  Shard place;                  // of the model tensor that they belong to: a run of a box
  std::optional<Shard> stored;  // as many of `stored->tensor`'s; nothing: they were not stored
};

/// By number of the model's tensor, of those that have a part elsewhere than in its place.
using ShiftedParts = std::map<uint32_t, std::vector<ShiftedPart>>;

/// What a run that builds its buffers as `choice` says stores where. Empty when all is in place, or
/// where the arguments do not say how many ranks share a buffer.
ShiftedParts find_shifted_parts(const ModelLayout& layout, const BufferChoice& choice);

/// Appends moves of the elements of one run to the place of another, of as many elements of a
/// tensor of whatever shape. `input`: of the recipe.
void add_run_moves(const Shard& from, const Shard& to, uint32_t input, std::vector<Move>& moves);

}  // namespace ferry
