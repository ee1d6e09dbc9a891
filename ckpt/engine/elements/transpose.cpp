#include "ckpt/engine/elements/transpose.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ckpt/engine/elements/transpose_kernel.h"

namespace ferry {
namespace {

constexpr int64_t kLineBytes = 64;
// Written to a row of the target at once: long enough for the memory's pages, short enough that the
// source rows it comes from stay in the nearest cache.
constexpr int64_t kSegmentBytes = 256;
// A target that covers more does not stay in a core's cache until it is read again.
constexpr int64_t kStreamBytes = 1 << 20;

bool is_line_aligned(const std::byte* out, int64_t pitch) {
  return reinterpret_cast<uintptr_t>(out) % kLineBytes == 0 && pitch % kLineBytes == 0;
}

// Transposes blocks of a few columns of the source through `segments_`, whose rows are target rows.
template <int64_t Bytes>
class Transposer {
 public:
  Transposer(const std::byte* in, int64_t in_pitch, std::byte* out, int64_t out_pitch, Matrix shape)
      : in_(in),
        in_pitch_(in_pitch),
        out_(out),
        out_pitch_(out_pitch),
        shape_(shape),
        streams_(shape.columns * out_pitch > kStreamBytes && is_line_aligned(out, out_pitch)) {}

  void run() {
    const int64_t height = kSegmentBytes / Bytes;
    for (int64_t row = 0; row < shape_.rows; row += height) {
      const int64_t rows = std::min(height, shape_.rows - row);
      for (int64_t column = 0; column < shape_.columns; column += kSide) {
        move_block(row, rows, column, std::min(kSide, shape_.columns - column));
      }
    }
    if (streams_) finish_streams();
  }

 private:
  static constexpr int64_t kSide = kVectorBytes / Bytes;  // elements of a block's row

  void move_block(int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const std::byte* in = in_ + row * in_pitch_ + column * Bytes;
    std::byte* out = out_ + column * out_pitch_ + row * Bytes;
    const bool whole = columns == kSide && kSide > 1;
    const int64_t blocks = whole ? rows / kSide : 0;
    const int64_t lines = streams_ ? rows * Bytes / kLineBytes * kLineBytes : 0;
    if (lines == 0) {
      if (blocks > 0) transpose_panel(in, in_pitch_, out, out_pitch_, blocks, Bytes);
      return move_singly(in, out, out_pitch_, blocks * kSide, rows, columns);
    }
    if (blocks > 0) transpose_panel(in, in_pitch_, segments_, kSegmentBytes, blocks, Bytes);
    move_singly(in, segments_, kSegmentBytes, blocks * kSide, rows, columns);
    for (int64_t c = 0; c < columns; ++c) {
      const std::byte* segment = segments_ + c * kSegmentBytes;
      stream_lines(segment, out + c * out_pitch_, lines);
      std::memcpy(out + c * out_pitch_ + lines, segment + lines,
                  static_cast<size_t>(rows * Bytes - lines));
    }
  }

  // The rows from `first` on, element by element: what is left of whole blocks.
  void move_singly(const std::byte* in, std::byte* out, int64_t out_pitch, int64_t first,
                   int64_t rows, int64_t columns) const {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = first; r < rows; ++r) {
        std::memcpy(out + c * out_pitch + r * Bytes, in + r * in_pitch_ + c * Bytes,
                    static_cast<size_t>(Bytes));
      }
    }
  }

  const std::byte* in_;
  int64_t in_pitch_;
  std::byte* out_;
  int64_t out_pitch_;
  Matrix shape_;
  bool streams_;
  alignas(kLineBytes) std::byte segments_[kVectorBytes * kSegmentBytes];
};

}  // namespace

void transpose(const std::byte* in, int64_t in_pitch, std::byte* out, int64_t out_pitch,
               Matrix shape, int64_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return Transposer<1>(in, in_pitch, out, out_pitch, shape).run();
    case 2:
      return Transposer<2>(in, in_pitch, out, out_pitch, shape).run();
    case 4:
      return Transposer<4>(in, in_pitch, out, out_pitch, shape).run();
    case 8:
      return Transposer<8>(in, in_pitch, out, out_pitch, shape).run();
    default:
      return Transposer<16>(in, in_pitch, out, out_pitch, shape).run();
  }
}

}  // namespace ferry
