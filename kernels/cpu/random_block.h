// Vectorized random numbers of consecutive elements.
#pragma once

#include "kernels/cpu/vector.h"
#include "kernels/random.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

constexpr int kRandomBlock = 4 * kLanes;

/// The upper 32 bits of products of 32-bit numbers.
FERRY_INLINE UInt high_product(UInt a, uint32_t b) {
  using Wide = uint64_t __attribute__((vector_size(128)));
  return __builtin_convertvector(__builtin_convertvector(a, Wide) * b >> 32, UInt);
}

/// The words of sixteen counters (philox in random.h), from `counter` on.
FERRY_INLINE void random_words(uint64_t key, uint64_t counter, uint32_t* words) {
  const UInt lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const auto low = static_cast<uint32_t>(counter), high = static_cast<uint32_t>(counter >> 32);
  UInt x0 = lane + low;
  UInt x1 = x0 < low ? UInt{} + (high + 1) : UInt{} + high;
  UInt x2{}, x3{};
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const UInt a = high_product(x0, 0xD2511F53), b = high_product(x2, 0xCD9E8D57);
    const UInt y0 = b ^ x1 ^ k0, y2 = a ^ x3 ^ k1;
    x1 = x2 * 0xCD9E8D57;
    x3 = x0 * 0xD2511F53;
    x0 = y0;
    x2 = y2;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int i = 0; i < kLanes; ++i) {
    words[4 * i] = x0[i];
    words[4 * i + 1] = x1[i];
    words[4 * i + 2] = x2[i];
    words[4 * i + 3] = x3[i];
  }
}

/// uniform_at (random.h) of the elements [first, first + kRandomBlock).
FERRY_INLINE void uniforms(uint64_t key, uint64_t first, float* numbers) {
  uint32_t words[2 * kRandomBlock];
  const uint64_t lead = first % 4;
  random_words(key, first / 4, words);
  if (lead != 0) random_words(key, first / 4 + kLanes, words + kRandomBlock);
  for (int i = 0; i < kRandomBlock; ++i) {
    numbers[i] = static_cast<float>(static_cast<int32_t>(words[lead + i] >> 8)) * 0x1p-24F;
  }
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
