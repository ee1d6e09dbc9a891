#include "ckpt/engine/transfers/piece.h"

#include <algorithm>

namespace ferry {
namespace {

// Cuts the run [begin, end) of the flattened box [axis, rank) into boxes: the rest of a first row,
// whole rows, the start of a last row; and the same again inside the two partial rows.
class RunCutter {
 public:
  RunCutter(const Chunk& chunk, int64_t element_bytes, uint64_t base)
      : chunk_(chunk), base_(base), strides_(row_major_strides(chunk.box.size)) {
    byte_strides_ = strides_;
    for (int64_t& stride : byte_strides_) stride *= element_bytes;
    element_bytes_ = element_bytes;
  }

  std::vector<Piece> cut() {
    box_ = {chunk_.box.offset, Dims(chunk_.box.size.size(), 1)};
    if (chunk_.run_count > 0) cut_axis(0, chunk_.run_begin, chunk_.run_begin + chunk_.run_count, 0);
    return std::move(pieces_);
  }

 private:
  void cut_axis(size_t axis, int64_t begin, int64_t end, int64_t before) {
    if (axis == strides_.size()) return emit(axis, before);
    const int64_t inner = strides_[axis];
    if (begin == 0 && end == inner * chunk_.box.size[axis]) return emit(axis, before);
    int64_t row = begin / inner;
    if (begin % inner != 0) {
      const int64_t row_end = std::min(end, (row + 1) * inner);
      cut_row(axis, row, begin - row * inner, row_end - row * inner, before);
      ++row;
    }
    const int64_t last = end / inner;
    if (row < last) {
      box_.offset[axis] = chunk_.box.offset[axis] + row;
      box_.size[axis] = last - row;
      emit(axis + 1, before + row * inner);
      box_.size[axis] = 1;
    }
    if (last >= row && end % inner != 0) cut_row(axis, last, 0, end - last * inner, before);
  }

  void cut_row(size_t axis, int64_t row, int64_t begin, int64_t end, int64_t before) {
    box_.offset[axis] = chunk_.box.offset[axis] + row;
    box_.size[axis] = 1;
    cut_axis(axis + 1, begin, end, before + row * strides_[axis]);
  }

  // Axes from `axis` on are whole; `before` counts the elements of the box ahead of the piece.
  void emit(size_t axis, int64_t before) {
    Piece piece{box_, 0, byte_strides_};
    for (size_t a = axis; a < strides_.size(); ++a) {
      piece.box.offset[a] = chunk_.box.offset[a];
      piece.box.size[a] = chunk_.box.size[a];
    }
    piece.offset = base_ + static_cast<uint64_t>((before - chunk_.run_begin) * element_bytes_);
    pieces_.push_back(std::move(piece));
  }

  const Chunk& chunk_;
  uint64_t base_;
  Dims strides_;  // elements, row-major
  Dims byte_strides_;
  int64_t element_bytes_ = 1;
  Box box_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::vector<Piece> cut_into_pieces(const Chunk& chunk, int64_t element_bytes, uint64_t base) {
  if (chunk.is_run()) return RunCutter(chunk, element_bytes, base).cut();
  Piece piece{chunk.box, base,
              chunk.strides.empty() ? row_major_strides(chunk.box.size) : chunk.strides};
  for (int64_t& stride : piece.strides) stride *= element_bytes;
  return {std::move(piece)};
}

}  // namespace ferry
