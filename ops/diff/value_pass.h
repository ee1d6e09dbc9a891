// Compares the values of pairs of tensors, streaming.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/engine/engine.h"
#include "ops/diff/tensor_diff.h"

namespace ferry {

/// Fills `values` of the diffs that are `by_value`, and their status where values differ. `diffs`
/// are parallel to `pairs`, whose recipes count in the catalogs. Reads every element once, with
/// several threads, in parts that fit the options' memory. Returns the bytes of A that were
/// compared, which progress counts too.
uint64_t compare_values(const Catalog& a, const Catalog& b, std::vector<TensorPair>& pairs,
                        std::vector<TensorDiff>& diffs, const Tolerance& tolerance,
                        const EngineOptions& options);

}  // namespace ferry
