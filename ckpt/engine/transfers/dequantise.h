// Quantised inputs: the scales of their blocks, and elements times scale.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/core/recipe.h"
#include "ckpt/engine/box_reader.h"
#include "ckpt/engine/elements/strided_copy.h"

namespace ferry {

/// The blocks, counted along each axis, that hold everything that a move reads of its input.
Box blocks_of(const Move& move, const Dims& block);

/// The scales of a box of blocks, row-major.
struct ScaleBox {
  Box blocks;
  std::shared_ptr<const std::vector<float>> values;
};

/// Reads scales when they are asked for. A tensor of few is read whole and kept for a while, as its
/// blocks are met tile by tile; those of small blocks may be as large as the model itself, and of
/// such a tensor no more is read than is asked for.
class ScaleReader {
 public:
  explicit ScaleReader(const Catalog& catalog) : catalog_(catalog) {}

  /// At least the scales of `blocks`, of `grid` blocks in all, as fp32. The entry's shape is the
  /// grid's but for axes of one element, of which either may have more. Safe from several threads.
  ScaleBox read(uint32_t entry, const Box& blocks, const Dims& grid);

 private:
  BoxReader& reader(uint32_t entry);

  const Catalog& catalog_;
  std::mutex mutex_;
  std::map<uint32_t, std::unique_ptr<BoxReader>> readers_;
  std::vector<std::pair<uint32_t, ScaleBox>> kept_;
  size_t kept_values_ = 0;
};

/// A move of a quantised input of shape `shape`, cut so that each part reads from one block, with
/// that block's scale. `scales` holds those of blocks_of() the move.
std::vector<std::pair<Move, float>> cut_by_block(const Move& move, const Dims& block,
                                                 const ScaleBox& scales, const Dims& shape);

/// For every index of the loops: out[...] = in[...] x scale, multiplied in fp32 and rounded once
/// more to the target's dtype. Elements of `in` have one byte.
void dequantise(const std::byte* in, DType in_dtype, float scale, std::byte* out, DType out_dtype,
                const std::vector<StridedLoop>& loops);

}  // namespace ferry
