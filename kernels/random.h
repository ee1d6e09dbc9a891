// Stateless random numbers: a function of a key and an element.
//
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (Philox4x32-10).
#pragma once

#include <array>
#include <cstdint>

#include "kernels/array.h"

namespace ferry::kernels {

/// Four words at a 128-bit counter.
constexpr std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low,
                                         uint64_t counter_high) {
  std::array<uint32_t, 4> x{
      static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
      static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * x[0], b = uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

/// Combines several numbers (seed, step, tensor) into one key; the order matters.
constexpr uint64_t mix_key(uint64_t key, uint64_t number) {
  const auto words = philox(key, number, 0x6B6579);
  return words[0] | uint64_t{words[1]} << 32;
}

/// The number in [0, 1) at an element: word element % 4 of counter element / 4.
constexpr float uniform_at(uint64_t key, uint64_t element) {
  return static_cast<float>(philox(key, element / 4, 0)[element % 4] >> 8) * 0x1p-24F;
}

/// y[i] = mean + deviation · (a standard normal number at element first + i), by Box and Muller's
/// transform of the two words of element / 2 · 2 and the next one.
struct FillNormal {
  int64_t count = 0;
  uint64_t key = 0;
  uint64_t first = 0;
  double mean = 0, deviation = 1;
  Array y;
};

struct FillConstant {
  int64_t count = 0;
  float value = 0;
  Array y;
};

}  // namespace ferry::kernels
