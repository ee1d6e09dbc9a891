// For processors without a kernel of their own.
#include <cstring>

#include "ckpt/engine/elements/transpose_kernel.h"

namespace ferry {
namespace {

template <int64_t Bytes>
void panel(const std::byte* in, int64_t in_pitch, std::byte* out, int64_t out_pitch,
           int64_t blocks) {
  struct Element {
    std::byte bytes[Bytes];
  };
  constexpr int64_t kSide = kVectorBytes / Bytes;
  for (int64_t block = 0; block < blocks; ++block) {
    Element rows[kSide][kSide], columns[kSide][kSide];
    for (int64_t r = 0; r < kSide; ++r) std::memcpy(rows[r], in + r * in_pitch, kVectorBytes);
    for (int64_t r = 0; r < kSide; ++r) {
      for (int64_t c = 0; c < kSide; ++c) columns[c][r] = rows[r][c];
    }
    for (int64_t c = 0; c < kSide; ++c) std::memcpy(out + c * out_pitch, columns[c], kVectorBytes);
    in += kSide * in_pitch;
    out += kVectorBytes;
  }
}

}  // namespace

void transpose_panel(const std::byte* in, int64_t in_pitch, std::byte* out, int64_t out_pitch,
                     int64_t blocks, int64_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return panel<1>(in, in_pitch, out, out_pitch, blocks);
    case 2:
      return panel<2>(in, in_pitch, out, out_pitch, blocks);
    case 4:
      return panel<4>(in, in_pitch, out, out_pitch, blocks);
    default:
      return panel<8>(in, in_pitch, out, out_pitch, blocks);
  }
}

void stream_lines(const std::byte* in, std::byte* out, int64_t bytes) {
  std::memcpy(out, in, static_cast<size_t>(bytes));
}

void finish_streams() {}

}  // namespace ferry
