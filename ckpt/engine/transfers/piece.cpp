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

}  // namespace ferry
