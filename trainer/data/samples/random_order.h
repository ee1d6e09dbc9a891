// The random numbers of NumPy, PyTorch and Python that determine the order of samples, bit for bit
// on every machine.
//
// Sources: Matsumoto and Nishimura, "Mersenne Twister" (1998); O'Neill, "PCG" (2014); Lemire, "Fast
// random integer generation in an interval" (2019); numpy/random (legacy shuffle, SeedSequence);
// aten/src/ATen/native (randperm, uniform); CPython's Lib/random.py and Modules/_randommodule.c.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace ferry {

/// numpy.random.RandomState(seed), for shuffling.
class NumpyRandomState {
 public:
  explicit NumpyRandomState(uint32_t seed) : generator_(seed) {}

  /// shuffle() of at most 2^32 elements.
  template <typename T>
  void shuffle(std::span<T> values) {
    for (uint64_t i = values.size(); i-- > 1;) {
      std::swap(values[i], values[below_or_at(static_cast<uint32_t>(i))]);
    }
  }

 private:
  // Masked words, until one does not exceed the limit.
  uint32_t below_or_at(uint32_t limit) {
    const uint32_t mask = UINT32_MAX >> std::countl_zero(limit);
    uint32_t value = generator_() & mask;
    while (value > limit) value = generator_() & mask;
    return value;
  }

  std::mt19937 generator_;
};

/// Python's random.Random(seed).
class PythonRandom {
 public:
  explicit PythonRandom(uint32_t seed);

  /// randrange(limit), limit >= 1: the highest bits of words, until one is small enough.
  uint32_t below(uint32_t limit) {
    const int bits = std::bit_width(limit);
    uint32_t value = generator_() >> (32 - bits);
    while (value >= limit) value = generator_() >> (32 - bits);
    return value;
  }

  /// shuffle() of fewer than 2^32 elements.
  template <typename T>
  void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i-- > 1;) {
      std::swap(values[i], values[below(static_cast<uint32_t>(i) + 1)]);
    }
  }

 private:
  std::mt19937 generator_;
};

/// numpy.random.default_rng(seed).integers(low, high, count, dtype=int32): in [low, high).
std::vector<int32_t> numpy_integers(uint32_t seed, int32_t low, int32_t high, int64_t count);

/// torch.randperm(count) on the CPU after manual_seed(seed).
std::vector<int64_t> torch_permutation(int64_t count, uint64_t seed);

/// torch.rand(count) in float32 on the CPU after manual_seed(seed).
std::vector<float> torch_uniform(int64_t count, uint64_t seed);

}  // namespace ferry
