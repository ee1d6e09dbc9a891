// Pieces: what chunks look like once runs are cut into boxes and items are located.
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/core/catalog.h"

namespace ferry {

/// A box of a global tensor whose elements are at byte strides from a first byte.
struct Piece {
  Box box;
  uint64_t offset = 0;  // bytes, of the box's first element (in the file, or the decoded stream)
  Dims strides;         // bytes, one an axis
};

/// The boxes that a chunk's elements fill: one, or a few when the chunk is a run. The chunk's
/// extent must be raw; `base` is the byte position of its first element.
std::vector<Piece> cut_into_pieces(const Chunk& chunk, int64_t element_bytes, uint64_t base);

/// Byte position of the element at `coordinates`, which are inside the piece's box.
uint64_t byte_position(const Piece& piece, const Dims& coordinates);

/// Byte position of an extent's first element, in the file or the decoded stream.
uint64_t first_byte(const Extent& extent);

}  // namespace ferry
