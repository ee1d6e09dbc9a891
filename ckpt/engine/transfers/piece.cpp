#include "ckpt/engine/transfers/piece.h"

namespace ferry {

std::vector<Piece> cut_into_pieces(const Chunk& chunk, int64_t element_bytes, uint64_t base) {
  Dims strides = chunk.strides.empty() ? row_major_strides(chunk.box.size) : chunk.strides;
  for (int64_t& stride : strides) stride *= element_bytes;
  std::vector<Piece> pieces;
  for (FilledBox& filled : filled_boxes(chunk)) {
    const auto before = static_cast<uint64_t>(filled.first * element_bytes);
    pieces.push_back({std::move(filled.box), base + before, strides});
  }
  return pieces;
}

uint64_t byte_position(const Piece& piece, const Dims& coordinates) {
  auto position = static_cast<int64_t>(piece.offset);
  for (size_t axis = 0; axis < coordinates.size(); ++axis) {
    position += (coordinates[axis] - piece.box.offset[axis]) * piece.strides[axis];
  }
  return static_cast<uint64_t>(position);
}

uint64_t first_byte(const Extent& extent) {
  return extent.zstd ? extent.payload_offset : extent.offset + extent.payload_offset;
}

}  // namespace ferry
