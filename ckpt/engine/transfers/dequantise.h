// Quantised inputs: the scales of their blocks, and elements times scale.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/core/recipe.h"
#include "ckpt/engine/elements/strided_copy.h"

namespace ferry {

/// Reads tensors of scales when they are first asked for, and keeps the last few: those of a large
/// model are hundreds of megabytes.
class ScaleReader {
 public:
  explicit ScaleReader(const Catalog& catalog) : catalog_(catalog) {}

  /// All elements of an entry as fp32, row-major. Safe from several threads. exhausted when they
  /// are more than any tensor's scales.
  std::shared_ptr<const std::vector<float>> read(uint32_t entry);

 private:
  const Catalog& catalog_;
  std::mutex mutex_;
  std::vector<std::pair<uint32_t, std::shared_ptr<const std::vector<float>>>> kept_;
  size_t kept_values_ = 0;
};

/// A move of a quantised input, cut so that each part reads from one block, with that block's
/// scale. `values` are the scales of an input of shape `shape`, row-major.
std::vector<std::pair<Move, float>> cut_by_block(const Move& move, const BlockScales& scales,
                                                 const std::vector<float>& values,
                                                 const Dims& shape);

/// For every index of the loops: out[...] = in[...] x scale, multiplied in fp32 and rounded once
/// more to the target's dtype. Elements of `in` have one byte.
void dequantise(const std::byte* in, DType in_dtype, float scale, std::byte* out, DType out_dtype,
                const std::vector<StridedLoop>& loops);

}  // namespace ferry
