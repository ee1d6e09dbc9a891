#include "trainer/data/samples/random_order.h"

#include <array>
#include <numeric>

namespace ferry {
namespace {

__extension__ using uint128_t = unsigned __int128;

// Expands a small seed to any number of 32-bit words (numpy's SeedSequence).
class SeedSequence {
 public:
  explicit SeedSequence(uint32_t seed) {
    uint32_t multiplier = 0x43b0d7e5;
    const auto hash = [&](uint32_t value) { return mixed(value, multiplier, 0x931e8875); };
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i == 0 ? seed : 0);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from == to) continue;
        const uint32_t value = 0xca01f9dd * pool_[to] - 0x4973f715 * hash(pool_[from]);
        pool_[to] = value ^ value >> 16;
      }
    }
  }

  template <size_t N>
  std::array<uint32_t, N> words() const {
    std::array<uint32_t, N> words{};
    uint32_t multiplier = 0x8b51f9dd;
    for (size_t i = 0; i < N; ++i) {
      words[i] = mixed(pool_[i % pool_.size()], multiplier, 0x58f38ded);
    }
    return words;
  }

 private:
  static uint32_t mixed(uint32_t value, uint32_t& multiplier, uint32_t step) {
    value ^= multiplier;
    multiplier *= step;
    value *= multiplier;
    return value ^ value >> 16;
  }

  std::array<uint32_t, 4> pool_{};
};

// PCG64, two 32-bit words per step, the low one first.
class Pcg64 {
 public:
  explicit Pcg64(uint32_t seed) {
    const auto words = SeedSequence(seed).words<8>();
    std::array<uint64_t, 4> values{};
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = words[2 * i] | static_cast<uint64_t>(words[2 * i + 1]) << 32;
    }
    increment_ = (static_cast<uint128_t>(values[2]) << 64 | values[3]) << 1 | 1;
    step();
    state_ += static_cast<uint128_t>(values[0]) << 64 | values[1];
    step();
  }

  uint32_t next() {
    if (has_high_) {
      has_high_ = false;
      return high_;
    }
    step();
    const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const uint64_t value = std::rotr(folded, static_cast<int>(state_ >> 122));
    has_high_ = true;
    high_ = static_cast<uint32_t>(value >> 32);
    return static_cast<uint32_t>(value);
  }

 private:
  void step() {
    constexpr uint128_t kMultiplier =
        static_cast<uint128_t>(0x2360ED051FC65DA4) << 64 | 0x4385DF649FCCF645;
    state_ = state_ * kMultiplier + increment_;
  }

  uint128_t state_ = 0, increment_ = 0;
  bool has_high_ = false;
  uint32_t high_ = 0;
};

// The state of CPython's generator after seed(number): the Mersenne Twister's initialization by an
// array of one word.
std::mt19937 python_generator(uint32_t seed) {
  constexpr size_t kWords = std::mt19937::state_size;
  struct Words {
    std::array<uint32_t, kWords> state;
    using result_type = uint32_t;
    // A seed sequence that sets std::mt19937's state to these words.
    void generate(uint32_t* begin, uint32_t* end) const {
      for (size_t i = 0; begin != end; ++begin, ++i) *begin = state[i];
    }
  } words{};
  auto& state = words.state;
  state[0] = 19650218;
  for (uint32_t i = 1; i < kWords; ++i) {
    state[i] = 1812433253 * (state[i - 1] ^ state[i - 1] >> 30) + i;
  }
  const auto step = [&](size_t i, uint32_t factor) {
    return state[i] ^ (state[i - 1] ^ state[i - 1] >> 30) * factor;
  };
  size_t i = 1;
  const auto go_on = [&] {
    if (++i < kWords) return;
    state[0] = state[kWords - 1];
    i = 1;
  };
  for (size_t k = 0; k < kWords; ++k, go_on()) state[i] = step(i, 1664525) + seed;
  for (size_t k = 1; k < kWords; ++k, go_on()) {
    state[i] = step(i, 1566083941) - static_cast<uint32_t>(i);
  }
  state[0] = 0x80000000;
  return std::mt19937(words);
}

}  // namespace

PythonRandom::PythonRandom(uint32_t seed) : generator_(python_generator(seed)) {}

std::vector<int32_t> numpy_integers(uint32_t seed, int32_t low, int32_t high, int64_t count) {
  Pcg64 generator(seed);
  const auto range = static_cast<uint32_t>(high - low);
  const uint32_t unfair = -range % range;  // low halves below it would be biased
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int32_t& value : values) {
    uint64_t product = 0;
    do {
      product = static_cast<uint64_t>(generator.next()) * range;
    } while (static_cast<uint32_t>(product) < unfair);
    value = low + static_cast<int32_t>(product >> 32);
  }
  return values;
}

std::vector<int64_t> torch_permutation(int64_t count, uint64_t seed) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), int64_t{0});
  std::mt19937 generator(static_cast<uint32_t>(seed));
  const auto n = static_cast<uint64_t>(count);
  // From this size on PyTorch uses 64-bit words, high half first, and builds the order from the
  // front.
  if (n >= UINT32_MAX / 20) {
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t high = generator();
      const uint64_t word = high << 32 | generator();
      std::swap(values[i], values[word % (i + 1)]);
    }
    return values;
  }
  for (uint64_t i = 0; i + 1 < n; ++i) std::swap(values[i], values[i + generator() % (n - i)]);
  return values;
}

std::vector<float> torch_uniform(int64_t count, uint64_t seed) {
  std::mt19937 generator(static_cast<uint32_t>(seed));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(generator() & 0xffffff) * 0x1p-24f;
  return values;
}

}  // namespace ferry
