#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

template <typename T, typename Index>
__device__ T* head_of(const Rotary& x, Index token, Index head) {
  const auto per_group = static_cast<Index>(x.heads_per_group);
  return static_cast<T*>(x.x.data) + token * x.token_stride + head / per_group * x.group_stride +
         head % per_group * x.head_stride;
}

/// Rotates the pairs (i, i + half): (a, b) becomes (a·cos - b·sin, b·cos + a·sin). Index: the index
/// type, 32 bits if sufficient, because divisions are expensive.
template <typename T, typename Index>
struct RotateHalves {
  Rotary x;
  Index half, heads, tokens_per_position;
  template <int W>
  __device__ void at(int64_t element) const {
    const auto number = static_cast<Index>(element);
    const Index all = number / half, i = number - all * half;
    const Index token = all / heads, head = all - token * heads;
    T* const p = head_of<T>(x, token, head) + i;
    const int64_t row = int64_t{token / tokens_per_position} * half + i;
    auto a = load<W>(p), b = load<W>(p + half);
    const auto c = load<W>(x.cosine + row), s = load<W>(x.sine + row);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float sine = x.backward ? -s.v[j] : s.v[j];
      const float first = a.v[j] * c.v[j] - b.v[j] * sine;
      b.v[j] = b.v[j] * c.v[j] + a.v[j] * sine;
      a.v[j] = first;
    }
    store<W>(p, a);
    store<W>(p + half, b);
  }
};

constexpr int kWarps = 4;

/// Neighbouring pairs (2i, 2i + 1) that become (i, i + half), or the inverse: a warp processes a
/// head, which it reads completely before it writes.
template <typename T>
__global__ void turn_pairs(Rotary x, int64_t half) {
  extern __shared__ float shared[];
  const int lane = threadIdx.x % 32;
  const int64_t number = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32;
  if (number >= x.positions * x.tokens_per_position * x.heads) return;
  const int64_t token = number / x.heads;
  T* const p = head_of<T>(x, token, number % x.heads);
  float* const head = shared + threadIdx.x / 32 * 2 * half;
  for (int64_t i = lane; i < 2 * half; i += 32) head[i] = to_float(p[i]);
  __syncwarp();
  const int64_t row = token / x.tokens_per_position * half;
  for (int64_t i = lane; i < half; i += 32) {
    const float a = head[x.backward ? i : 2 * i], b = head[x.backward ? half + i : 2 * i + 1];
    const float c = x.cosine[row + i], s = x.backward ? -x.sine[row + i] : x.sine[row + i];
    p[x.backward ? 2 * i : i] = from_float<T>(a * c - b * s);
    p[x.backward ? 2 * i + 1 : half + i] = from_float<T>(b * c + a * s);
  }
}

}  // namespace

void run(Device& device, const Rotary& x) {
  const int64_t half = x.dim / 2, heads = x.positions * x.tokens_per_position * x.heads;
  if (half == 0 || heads == 0) return;
  with_type(x.x.type, [&]<typename T>(T*) {
    if (x.interleaved) {
      const auto bytes = static_cast<size_t>(kWarps * 2 * half) * sizeof(float);
      turn_pairs<T>
          <<<static_cast<unsigned>(ceil_div(heads, kWarps)), 32 * kWarps, bytes, device.stream()>>>(
              x, half);
      check_launch("rotation of pairs");
    } else {
      const bool packed = is_packed({x.x.data, x.cosine, x.sine},
                                    {half, x.token_stride, x.group_stride, x.head_stride});
      const auto rotate = [&]<typename Index>(Index) {
        each_pack(device, heads * half, packed,
                  RotateHalves<T, Index>{x, static_cast<Index>(half), static_cast<Index>(x.heads),
                                         static_cast<Index>(x.tokens_per_position)},
                  "rotation");
      };
      if (heads * half < int64_t{1} << 31) {
        rotate(int32_t{});
      } else {
        rotate(int64_t{});
      }
    }
  });
}

}  // namespace ferry::kernels::cuda
