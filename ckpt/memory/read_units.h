// What a TensorStream reads, and in how much memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckpt/memory/tensor_set.h"

namespace ferry {

/// Tensors that are read together: one, or weights that are quantised as they are read, with what
/// belongs to them.
struct ReadUnit {
  std::vector<size_t> positions;  // of the set
  std::vector<bool> is_asked;     // else read for the sake of the other
  uint64_t bytes = 0;
};

/// Those of the options' rank. not_found for a name that is not there; invalid for a rank that is
/// none.
std::vector<ReadUnit> read_units(const TensorSet::State& tensors, const StreamOptions& options);

/// What the engine gets of the options' memory; the rest is for tensors. exhausted when one does
/// not fit.
uint64_t engine_memory(const TensorSet::State& tensors, const std::vector<ReadUnit>& units,
                       uint64_t memory_bytes);

}  // namespace ferry
