#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/vector.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

void CpuKernels::run(const EmbeddingForward& x) {
  with_types(x.table.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    team_.each(x.count, x.width, [&](int64_t index) {
      const int64_t row = x.ids[index] - x.first;
      const bool is_here = row >= 0 && row < x.rows;
      const auto* from = static_cast<const T*>(x.table.data) + row * x.width;
      auto* to = static_cast<Y*>(x.y.data) + index * x.width;
      vectors(0, x.width, [&](int64_t i, auto n) {
        const Float value = is_here ? load(from + i, n) : Float{};
        store(to + i, x.accumulate ? load(to + i, n) + value : value, n);
      });
    });
  });
}

// Threads split the columns, so that each row of the table is added to in token order.
void CpuKernels::run(const EmbeddingBackward& x) {
  with_types(x.dy.type, x.dtable.type, [&]<typename T, typename D>(T*, D*) {
    team_.parts(x.width, 4 * kLanes, x.count, [&](int64_t begin, int64_t end) {
      for (int64_t index = 0; index < x.count; ++index) {
        const int64_t row = x.ids[index] - x.first;
        if (row < 0 || row >= x.rows) continue;
        const auto* dy = static_cast<const T*>(x.dy.data) + index * x.width;
        auto* to = static_cast<D*>(x.dtable.data) + row * x.width;
        vectors(begin, end,
                [&](int64_t i, auto n) { store(to + i, load(to + i, n) + load(dy + i, n), n); });
      }
    });
  });
}

namespace {

/// Rotates the pairs (i, i + half): (a, b) becomes (a·cos - b·sin, b·cos + a·sin).
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

/// Moves neighbouring pairs to (i, i + half), or back. `moved`: scratch for one head.
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

void CpuKernels::run(const GatherRows& x) {
  with_types(x.x.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    team_.each(x.rows, x.width, [&](int64_t row) {
      const auto* from = static_cast<const T*>(x.x.data) + x.index[row] / x.divisor * x.width;
      auto* to = static_cast<Y*>(x.y.data) + row * x.width;
      vectors(0, x.width, [&](int64_t i, auto n) { store(to + i, load(from + i, n), n); });
    });
  });
}

void CpuKernels::run(const CombineRows& x) {
  with_types(x.x.type, x.y.type, [&]<typename T, typename Y>(T*, Y*) {
    const auto* from = static_cast<const T*>(x.x.data);
    team_.each(x.tokens, x.width * x.chosen, [&](int64_t token) {
      auto* to = static_cast<Y*>(x.y.data) + token * x.width;
      const int32_t* rows = x.row_of + token * x.chosen;
      vectors(0, x.width, [&](int64_t i, auto n) {
        Float sum = x.accumulate ? load(to + i, n) : Float{};
        for (int64_t j = 0; j < x.chosen; ++j) {
          if (rows[j] >= 0) sum += load(from + rows[j] * x.width + i, n);
        }
        store(to + i, sum, n);
      });
    });
  });
}

void CpuKernels::run(const GatherNumbers& x) {
  team_.each(x.count, 1, [&](int64_t i) { x.y[i] = x.index[i] < 0 ? 0 : x.x[x.index[i]]; });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
