// A block of threads takes a row of logits.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

constexpr int kRowThreads = 512;

template <int W, typename T>
__global__ void maximum(LogitMaximum x) {
  __shared__ float scratch[32];
  const T* const logits = static_cast<const T*>(x.logits.data) + blockIdx.x * x.columns;
  float greatest = -INFINITY;
  for (int64_t i = threadIdx.x * W; i < x.columns; i += kRowThreads * W) {
    const auto value = load<W>(logits + i);
#pragma unroll
    for (int j = 0; j < W; ++j) greatest = fmaxf(greatest, value.v[j]);
  }
  greatest = block_max(greatest, scratch);
  if (threadIdx.x == 0) x.maximum[blockIdx.x] = greatest;
}

template <int W, typename T>
__global__ void sums(LogitSums x) {
  __shared__ float scratch[32];
  const int64_t row = blockIdx.x;
  const T* const logits = static_cast<const T*>(x.logits.data) + row * x.columns;
  const float maximum = x.maximum[row];
  float sum = 0;
  for (int64_t i = threadIdx.x * W; i < x.columns; i += kRowThreads * W) {
    const auto value = load<W>(logits + i);
#pragma unroll
    for (int j = 0; j < W; ++j) sum += expf(value.v[j] - maximum);
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x != 0) return;
  x.sum[row] = sum;
  const int64_t target = x.targets[row] - x.first_column;
  const bool is_here = target >= 0 && target < x.columns;
  x.target[row] = is_here ? to_float(logits[target]) - maximum : 0.0F;
}

template <int W, typename T, typename D>
__global__ void gradient(CrossEntropyGradient x) {
  const int64_t row = blockIdx.x, start = row * x.columns;
  const T* const logits = static_cast<const T*>(x.logits.data) + start;
  D* const dlogits = static_cast<D*>(x.dlogits.data) + start;
  const float maximum = x.maximum[row], weight = x.weight[row], factor = weight / x.sum[row];
  const int64_t target = x.targets[row] - x.first_column;
  if (threadIdx.x == 0) x.loss[row] = logf(x.sum[row]) - x.target[row];
  for (int64_t i = threadIdx.x * W; i < x.columns; i += kRowThreads * W) {
    auto value = load<W>(logits + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      value.v[j] = factor * expf(value.v[j] - maximum) - (i + j == target ? weight : 0.0F);
    }
    store<W>(dlogits + i, value);
  }
}

/// A row's greatest logit, and the sum of exponentials of what is below it.
struct Tail {
  float maximum = -INFINITY, sum = 0;
  __device__ void add(const Tail& other) {
    const float greatest = fmaxf(maximum, other.maximum);
    if (greatest == -INFINITY) return;
    sum = sum * expf(maximum - greatest) + other.sum * expf(other.maximum - greatest);
    maximum = greatest;
  }
};

/// Of all threads of a block, in a fixed order; all of them get it.
__device__ Tail block_tail(Tail tail) {
  __shared__ Tail tails[32];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    tail.add({__shfl_xor_sync(0xffffffffU, tail.maximum, lanes),
              __shfl_xor_sync(0xffffffffU, tail.sum, lanes)});
  }
  if (threadIdx.x % 32 == 0) tails[threadIdx.x / 32] = tail;
  __syncthreads();
  Tail all;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) all.add(tails[warp]);
  return all;
}

/// Reads a row of logits once, into shared memory where it fits (`is_kept`); then again from there.
template <int W, typename T>
__global__ void cross_entropy(CrossEntropy x, bool is_kept) {
  extern __shared__ uint4 shared[];
  const int64_t row = blockIdx.x, target = x.targets[row];
  const T* logits = static_cast<const T*>(x.logits.data) + row * x.columns;
  T* const kept = reinterpret_cast<T*>(shared);
  const float own = to_float(logits[target]);
  Tail tail;
  for (int64_t i = threadIdx.x * W; i < x.columns; i += kRowThreads * W) {
    const auto value = load<W>(logits + i);
    if (is_kept) store<W>(kept + i, value);
    Tail part;
#pragma unroll
    for (int j = 0; j < W; ++j) part.maximum = fmaxf(part.maximum, value.v[j]);
#pragma unroll
    for (int j = 0; j < W; ++j) part.sum += expf(value.v[j] - part.maximum);
    tail.add(part);
  }
  tail = block_tail(tail);
  if (threadIdx.x == 0) x.loss[row] = logf(tail.sum) - (own - tail.maximum);
  if (x.weight == nullptr) return;
  if (is_kept) logits = kept;
  T* const dlogits = static_cast<T*>(x.dlogits.data) + row * x.columns;
  const float weight = x.weight[row], factor = weight / tail.sum;
  for (int64_t i = threadIdx.x * W; i < x.columns; i += kRowThreads * W) {
    auto value = load<W>(logits + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      value.v[j] = factor * expf(value.v[j] - tail.maximum) - (i + j == target ? weight : 0.0F);
    }
    store<W>(dlogits + i, value);
  }
}

struct Loss {
  const float *sum, *target;
  float* loss;
  __device__ void operator()(int64_t row) const { loss[row] = logf(sum[row]) - target[row]; }
};

}  // namespace

void run(Device& device, const CrossEntropy& x) {
  if (x.rows == 0) return;
  with_type(x.logits.type, [&]<typename T>(T*) {
    with_pack(is_packed({x.logits.data, x.dlogits.data}, {x.columns}), [&](auto pack) {
      auto* const kernel = cross_entropy<decltype(pack)::value, T>;
      const int64_t bytes = x.columns * size_bytes(x.logits.type);
      // Beside two blocks' rows there is room for little else.
      const bool is_kept = x.weight != nullptr && bytes + 2048 <= device.shared_memory();
      const auto shared = static_cast<size_t>(is_kept ? (bytes + 15) / 16 * 16 : 0);
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared)),
            "memory of a row of logits");
      kernel<<<static_cast<unsigned>(x.rows), kRowThreads, shared, device.stream()>>>(x, is_kept);
    });
  });
  check_launch("cross entropy");
}

void run(Device& device, const LogitMaximum& x) {
  if (x.rows == 0) return;
  with_type(x.logits.type, [&]<typename T>(T*) {
    with_pack(is_packed({x.logits.data}, {x.columns}), [&](auto pack) {
      maximum<decltype(pack)::value, T>
          <<<static_cast<unsigned>(x.rows), kRowThreads, 0, device.stream()>>>(x);
    });
  });
  check_launch("greatest logits");
}

void run(Device& device, const LogitSums& x) {
  if (x.rows == 0) return;
  with_type(x.logits.type, [&]<typename T>(T*) {
    with_pack(is_packed({x.logits.data}, {x.columns}), [&](auto pack) {
      sums<decltype(pack)::value, T>
          <<<static_cast<unsigned>(x.rows), kRowThreads, 0, device.stream()>>>(x);
    });
  });
  check_launch("sums of logits");
}

void run(Device& device, const CrossEntropyGradient& x) {
  if (x.rows == 0) return;
  if (x.weight == nullptr) return each(device, x.rows, Loss{x.sum, x.target, x.loss}, "losses");
  with_types(x.logits.type, x.dlogits.type, [&]<typename T, typename D>(T*, D*) {
    with_pack(is_packed({x.logits.data, x.dlogits.data}, {x.columns}), [&](auto pack) {
      gradient<decltype(pack)::value, T, D>
          <<<static_cast<unsigned>(x.rows), kRowThreads, 0, device.stream()>>>(x);
    });
  });
  check_launch("gradient of logits");
}

}  // namespace ferry::kernels::cuda
