// A thread's parts of rows in the backward pass, current and prefetched.
#pragma once

#include <cuda_pipeline.h>

#include "kernels/cuda/norm/norm.cuh"

namespace ferry::kernels::cuda {

/// A row's numbers, from the forward pass.
struct Statistics {
  float mean, inverse;
  __device__ static Statistics of(const NormBackward& x, int64_t row) {
    return {x.rms ? 0.0F : x.mean[row], x.inverse[row]};
  }
  __device__ float normal(float x) const { return (x - mean) * inverse; }
};

/// A thread's W columns of a row, as stored.
template <int W, typename T, typename D>
struct Columns {
  StoredPack<W, T> x;
  StoredPack<W, D> dy, before;  // before: the value that the gradient is added to

  __device__ void load(const NormBackward& n, int64_t at) {
    x = load_stored<W>(static_cast<const T*>(n.x.data) + at);
    dy = load_stored<W>(static_cast<const D*>(n.dy.data) + at);
    if (n.accumulate) before = load_stored<W>(static_cast<const D*>(n.dx.data) + at);
  }
};

/// Packs of a row per thread of a block.
constexpr int kBlockPacks = 4;

/// A thread's packs of the next ROWS rows, being copied to shared memory, so that registers hold
/// only one row. They are private to the thread, so it waits only for its own copies.
template <int ROWS, typename T, typename D>
class RowsAhead {
  static constexpr int K = kBlockPacks;
  static constexpr int kWordsOfX = StoredPack<kPack, T>::kWords;
  static constexpr int kWordsOfD = StoredPack<kPack, D>::kWords;
  static constexpr int kWords = K * (kWordsOfX + 2 * kWordsOfD) + 1;  // the last are statistics

 public:
  static constexpr unsigned bytes(unsigned threads) { return ROWS * kWords * threads * 16; }

  __device__ RowsAhead(const NormBackward& x, const RowStarts& starts, uint4* shared)
      : x_(x), starts_(starts), own_(shared + threadIdx.x) {}

  __device__ static int64_t column(int k) {
    return (int64_t{k} * blockDim.x + threadIdx.x) * kPack;
  }

  /// Starts copying a row to a free slot; nothing from `end` on.
  __device__ void ask(int place, int64_t row, int64_t end) {
    if (row < end) {
      const int64_t start = starts_(row);
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (column(k) >= x_.width) continue;
        copy<kWordsOfX>(word(place, k), static_cast<const T*>(x_.x.data) + start + column(k));
        copy<kWordsOfD>(word(place, k) + step() * kWordsOfX,
                        static_cast<const D*>(x_.dy.data) + start + column(k));
        if (!x_.accumulate) continue;
        copy<kWordsOfD>(word(place, k) + step() * (kWordsOfX + kWordsOfD),
                        static_cast<const D*>(x_.dx.data) + start + column(k));
      }
      auto* const statistics = reinterpret_cast<float*>(word(place, K));
      __pipeline_memcpy_async(statistics, x_.inverse + row, sizeof(float));
      if (!x_.rms) __pipeline_memcpy_async(statistics + 1, x_.mean + row, sizeof(float));
    }
    __pipeline_commit();
  }

  /// Takes the row that was requested first from its slot. Without columns `own` is unchanged.
  __device__ Statistics take(int place, Columns<kPack, T, D> (&own)[K]) const {
    __pipeline_wait_prior(ROWS - 1);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (column(k) >= x_.width) continue;
      const uint4* from = word(place, k);
      from = read(from, own[k].x.words);
      from = read(from, own[k].dy.words);
      if (x_.accumulate) read(from, own[k].before.words);
    }
    const auto* const statistics = reinterpret_cast<const float*>(word(place, K));
    return {x_.rms ? 0.0F : statistics[1], statistics[0]};
  }

 private:
  __device__ static int step() { return static_cast<int>(blockDim.x); }
  /// The first word of pack k of the row in a slot, or its statistics. A thread's words are strided
  /// so that neighbouring threads have adjacent ones.
  __device__ uint4* word(int place, int k) const {
    return own_ + (place * kWords + k * (kWordsOfX + 2 * kWordsOfD)) * step();
  }
  template <int N>
  __device__ static void copy(uint4* to, const void* from) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      __pipeline_memcpy_async(to + i * step(), static_cast<const uint4*>(from) + i, sizeof(uint4));
    }
  }
  template <int N>
  __device__ static const uint4* read(const uint4* from, uint4 (&to)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = from[i * step()];
    return from + N * step();
  }

  const NormBackward& x_;
  const RowStarts& starts_;
  uint4* own_;
};

}  // namespace ferry::kernels::cuda
