#include "ckpt/engine/elements/flip_signs.h"

namespace ferry {
namespace {

constexpr std::byte kSign{0x80};

void step(std::byte* out, int64_t first, int64_t second, const std::vector<StridedLoop>& loops,
          size_t level) {
  if (level == loops.size()) {
    if (first >= 0) out[first] ^= kSign;
    if (second >= 0) out[second] ^= kSign;
    return;
  }
  const StridedLoop& loop = loops[level];
  for (int64_t i = 0; i < loop.count; ++i) {
    step(out + i * loop.out_stride, first, second, loops, level + 1);
  }
}

}  // namespace

void flip_signs(std::byte* out, int64_t element_bytes, SignFlips flips,
                const std::vector<StridedLoop>& loops) {
  // Little-endian: the sign is in a part's last byte.
  const int64_t first = flips.first ? flips.part_bytes - 1 : -1;
  const int64_t second = flips.second ? element_bytes - 1 : -1;
  if (first >= 0 || second >= 0) step(out, first, second, loops, 0);
}

}  // namespace ferry
