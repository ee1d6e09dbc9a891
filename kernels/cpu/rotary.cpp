#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/vector.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

/// Turns the pairs (i, i + half): (a, b) becomes (a·cos - b·sin, b·cos + a·sin).
template <typename T>
FERRY_INLINE void turn_halves(T* x, const float* cosine, const float* sine, int64_t half,
                              float sign) {
  vectors(0, half, [&](int64_t i, auto n) {
    const Float a = load(x + i, n), b = load(x + half + i, n);
    const Float c = load(cosine + i, n), s = sign * load(sine + i, n);
    store(x + i, a * c - b * s, n);
    store(x + half + i, b * c + a * s, n);
  });
}

/// Moves neighbours to (i, i + half), or back. `moved`: memory for the head.
template <typename T>
FERRY_INLINE void move_pairs(T* x, T* moved, int64_t half, bool back) {
  for (int64_t i = 0; i < half; ++i) {
    moved[back ? 2 * i : i] = x[back ? i : 2 * i];
    moved[back ? 2 * i + 1 : half + i] = x[back ? half + i : 2 * i + 1];
  }
  std::memcpy(x, moved, static_cast<size_t>(2 * half) * sizeof(T));
}

}  // namespace

void CpuKernels::run(const Rotary& x) {
  const int64_t half = x.dim / 2, tokens = x.positions * x.tokens_per_position;
  const float sign = x.backward ? -1.0F : 1.0F;
  with_type(x.x.type, [&]<typename T>(T*) {
    std::byte* memory =
        x.interleaved ? workspace_.take(static_cast<size_t>(tokens * x.dim) * 4) : nullptr;
    team_.each(tokens, x.heads * x.dim, [&](int64_t token) {
      const int64_t row = token / x.tokens_per_position * half;
      auto* moved = reinterpret_cast<T*>(memory) + token * x.dim;
      for (int64_t head = 0; head < x.heads; ++head) {
        T* at = static_cast<T*>(x.x.data) + token * x.token_stride +
                head / x.heads_per_group * x.group_stride +
                head % x.heads_per_group * x.head_stride;
        if (x.interleaved && !x.backward) move_pairs(at, moved, half, false);
        turn_halves(at, x.cosine + row, x.sine + row, half, sign);
        if (x.interleaved && x.backward) move_pairs(at, moved, half, true);
      }
    });
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
