// Helpers for GPU operations: type dispatch, packs of elements, block sums, launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <type_traits>

#include "kernels/array.h"
#include "kernels/cuda/device/device.h"

namespace ferry::kernels::cuda {

using bf16 = __nv_bfloat16;
using half = __half;

/// Calls f with a pointer of the element type.
template <typename F>
void with_type(Type type, F&& f) {
  switch (type) {
    case Type::f32:
      return f(static_cast<float*>(nullptr));
    case Type::bf16:
      return f(static_cast<bf16*>(nullptr));
    case Type::f16:
      return f(static_cast<half*>(nullptr));
  }
}
/// The same for two types, which are equal or one is f32: a model has one 16-bit type.
template <typename F>
void with_types(Type first, Type second, F&& f) {
  with_type(first, [&]<typename A>(A* a) {
    if (second == first) return f(a, a);
    float* const single = nullptr;
    if constexpr (!std::is_same_v<A, float>) {
      if (second == Type::f32) return f(a, single);
    } else {
      if (second == Type::bf16) return f(single, static_cast<bf16*>(nullptr));
      if (second == Type::f16) return f(single, static_cast<half*>(nullptr));
    }
    throw std::logic_error("CUDA: an operation has two 16-bit types");
  });
}

/// The elements of an array of known type.
template <typename T>
T* elements(const Array& x) {
  return static_cast<T*>(x.data);
}
template <typename T>
const T* elements(const ConstArray& x) {
  return static_cast<const T*>(x.data);
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return __bfloat162float(x); }
__device__ inline float to_float(half x) { return __half2float(x); }
template <typename T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 from_float<bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline half from_float<half>(float x) {
  return __float2half_rn(x);
}

/// Two elements of 16 bits in a word.
__device__ inline uint32_t pair(float low, float high, bf16) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
__device__ inline uint32_t pair(float low, float high, half) {
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

constexpr float kLog2e = 1.44269504088896340736F;
/// 2^x with at most two wrong bits; subnormal results become 0.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// An element of an array with a type known at run time: parameters, statistics.
__device__ inline float element(const ConstArray& x, int64_t i) {
  if (x.type == Type::f32) return static_cast<const float*>(x.data)[i];
  if (x.type == Type::bf16) return to_float(static_cast<const bf16*>(x.data)[i]);
  return to_float(static_cast<const half*>(x.data)[i]);
}
__device__ inline void set_element(const Array& x, int64_t i, float value) {
  if (x.type == Type::f32) {
    static_cast<float*>(x.data)[i] = value;
  } else if (x.type == Type::bf16) {
    static_cast<bf16*>(x.data)[i] = from_float<bf16>(value);
  } else {
    static_cast<half*>(x.data)[i] = from_float<half>(value);
  }
}

/// W neighbouring elements as fp32.
template <int W>
struct Pack {
  float v[W];
};

/// Packs of kPack elements are moved 16 bytes at a time; packs of 1 if rows do not allow that.
constexpr int kPack = 8;

/// W neighbouring elements as stored, which take fewer registers until they are used.
template <int W, typename T>
struct StoredPack {
  static_assert(W == 1 || W * sizeof(T) % 16 == 0);
  using Word = std::conditional_t<W == 1, T, uint4>;
  static constexpr int kWords = W * static_cast<int>(sizeof(T)) / static_cast<int>(sizeof(Word));
  Word words[kWords];
};

template <int W, typename T>
__device__ inline StoredPack<W, T> load_stored(const T* p) {
  StoredPack<W, T> x;
#pragma unroll
  for (int i = 0; i < x.kWords; ++i) {
    x.words[i] = reinterpret_cast<const typename StoredPack<W, T>::Word*>(p)[i];
  }
  return x;
}

template <int W, typename T>
__device__ inline Pack<W> to_pack(const StoredPack<W, T>& words) {
  union U {
    typename StoredPack<W, T>::Word words[StoredPack<W, T>::kWords];
    T each[W];
    __device__ U() {}
  } u;
#pragma unroll
  for (int i = 0; i < words.kWords; ++i) u.words[i] = words.words[i];
  Pack<W> x;
#pragma unroll
  for (int i = 0; i < W; ++i) x.v[i] = to_float(u.each[i]);
  return x;
}

template <int W, typename T>
__device__ inline Pack<W> load(const T* p) {
  return to_pack(load_stored<W>(p));
}

/// One store of 16 bytes to p[INDEX] in global memory. A plain assignment may become four stores of
/// 4 bytes, especially around branches, each of which takes as long as a single one.
template <int INDEX = 0>
__device__ inline void store_16_bytes(uint4* p, uint4 x) {
  asm volatile("st.global.v4.b32 [%0 + %5], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
               "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "n"(16 * INDEX)
               : "memory");
}

template <int W, typename T>
__device__ inline void store(T* p, const Pack<W>& x) {
  static_assert(W == 1 || W * sizeof(T) % 16 == 0);
  if constexpr (W == 1) {
    *p = from_float<T>(x.v[0]);
  } else {
    constexpr int kWords = W * static_cast<int>(sizeof(T)) / 4;
    uint32_t words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        words[i] = __float_as_uint(x.v[i]);
      } else {
        words[i] = pair(x.v[2 * i], x.v[2 * i + 1], T());
      }
    }
    static_assert(kWords == 4 || kWords == 8);
    const auto four_from = [&](int i) {
      return make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
    };
    store_16_bytes<0>(reinterpret_cast<uint4*>(p), four_from(0));
    if constexpr (kWords == 8) store_16_bytes<1>(reinterpret_cast<uint4*>(p), four_from(4));
  }
}

/// Whether packs of kPack elements can be moved: every address and stride is a multiple of them.
inline bool is_packed(std::initializer_list<const void*> starts,
                      std::initializer_list<int64_t> distances) {
  for (const void* start : starts) {
    if (reinterpret_cast<uintptr_t>(start) % 16 != 0) return false;
  }
  for (const int64_t distance : distances) {
    if (distance % kPack != 0) return false;
  }
  return true;
}

/// Calls f(std::integral_constant<int, W>) with the pack size that fits.
template <typename F>
void with_pack(bool packed, F&& f) {
  if (packed) {
    f(std::integral_constant<int, kPack>());
  } else {
    f(std::integral_constant<int, 1>());
  }
}

/// The sum over the threads of a warp, or of each part of `Lanes` threads, returned to all of them;
/// adds halves pairwise.
template <int Lanes = 32, typename Number>
__device__ inline Number warp_sum(Number x) {
  constexpr unsigned kLanes = 0xffffffffU >> (32 - Lanes);
  const unsigned own = Lanes == 32 ? kLanes : kLanes << (threadIdx.x % 32 / Lanes * Lanes);
#pragma unroll
  for (int lanes = Lanes / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(own, x, lanes);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, lanes));
  return x;
}

/// The same over a block of at most 1024 threads in whole warps. `scratch`: 32 numbers in shared
/// memory, reusable after another barrier.
template <typename Number>
__device__ inline Number block_sum(Number x, Number* scratch) {
  x = warp_sum(x);
  const int warps = static_cast<int>(blockDim.x) / 32, lane = threadIdx.x % 32;
  if (lane == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_sum(lane < warps ? scratch[lane] : Number(0));
}
__device__ inline float block_max(float x, float* scratch) {
  x = warp_max(x);
  const int warps = static_cast<int>(blockDim.x) / 32, lane = threadIdx.x % 32;
  if (lane == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_max(lane < warps ? scratch[lane] : -INFINITY);
}

constexpr int kThreads = 256;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline void check_launch(const char* what) { check(cudaGetLastError(), what); }

/// Allows this many bytes of dynamic shared memory for a kernel's blocks on the current GPU. Two
/// threads that use different sizes for the same kernel and GPU could conflict.
template <typename Kernel>
void allow_shared_memory(Kernel* kernel, size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "asking for shared memory");
}

/// How many blocks of a kernel with this much dynamic shared memory the GPU runs at once.
template <typename... Arguments>
int64_t blocks_at_once(const Device& device, void (*kernel)(Arguments...), unsigned threads,
                       unsigned bytes = 0) {
  int of_each = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_each, kernel, static_cast<int>(threads),
                                                      bytes),
        "counting blocks");
  return int64_t{std::max(of_each, 1)} * device.multiprocessors();
}

/// A grid of at most a few times the blocks that run at once, for grid-stride loops.
inline unsigned grid_of(const Device& device, int64_t blocks) {
  const int64_t most = 16 * static_cast<int64_t>(device.multiprocessors());
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

template <typename F>
__global__ void each_kernel(int64_t count, F f) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    f(i);
  }
}

/// Calls f(i) for all i below `count`, one per thread. F is a struct with a __device__ operator().
template <typename F>
void each(Device& device, int64_t count, const F& f, const char* what) {
  if (count <= 0) return;
  each_kernel<<<grid_of(device, ceil_div(count, kThreads)), kThreads, 0, device.stream()>>>(count,
                                                                                            f);
  check_launch(what);
}

/// Calls f(start) for packs of W elements from `start` on: kPack elements if the arrays allow it,
/// otherwise, and at the end, single ones.
template <int W, typename F>
struct PackAt {
  F f;
  int64_t first;
  __device__ void operator()(int64_t i) const { f.template at<W>(first + i * W); }
};
template <typename F>
void each_pack(Device& device, int64_t count, bool packed, const F& f, const char* what) {
  const int64_t packs = packed ? count / kPack : 0;
  each(device, packs, PackAt<kPack, F>{f, 0}, what);
  each(device, count - packs * kPack, PackAt<1, F>{f, packs * kPack}, what);
}

}  // namespace ferry::kernels::cuda
