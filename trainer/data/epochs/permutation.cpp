#include "trainer/data/epochs/permutation.h"

#include <bit>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

uint32_t mixed(uint32_t i, uint32_t mask, uint32_t seed) {
  i ^= seed;
  i *= 0xE170893D;
  i ^= seed >> 16;
  i ^= (i & mask) >> 4;
  i ^= seed >> 8;
  i *= 0x0929EB3F;
  i ^= seed >> 23;
  i ^= (i & mask) >> 1;
  i *= 1 | seed >> 27;
  i *= 0x6935FA69;
  i ^= (i & mask) >> 11;
  i *= 0x74DCB303;
  i ^= (i & mask) >> 2;
  i *= 0x9E501CC3;
  i ^= (i & mask) >> 2;
  i *= 0xC860A3DF;
  return i & mask;
}

}  // namespace

int64_t permute(int64_t i, int64_t n, int64_t seed) {
  constexpr int64_t kMost = int64_t{1} << 32;
  if (n < 2 || n > kMost || i < 0 || i >= n || seed < 0) {
    fail(ErrorKind::invalid,
         "element {} of {} cannot be permuted with seed {}: there have to be 2 to {} elements, "
         "numbered from 0, and the seed must not be negative",
         i, n, seed, kMost);
  }
  const uint32_t mask = UINT32_MAX >> std::countl_zero(static_cast<uint32_t>(n - 1));
  // Only the low 32 bits of the seed reach those of the result.
  auto value = static_cast<uint32_t>(i);
  do {
    value = mixed(value, mask, static_cast<uint32_t>(seed));
  } while (value >= static_cast<uint64_t>(n));
  return static_cast<int64_t>((value + static_cast<uint64_t>(seed)) % static_cast<uint64_t>(n));
}

}  // namespace ferry
