// A block of threads takes a row of logits.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

constexpr int kRowThreads = 1024;

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

/// e^x as exact as numbers of the type can tell.
template <typename T>
__device__ float exp_of(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return __expf(x);
  }
}

/// A thread's share of a sum of exponentials, of numbers less the greatest of them.
template <typename T>
struct Exponentials {
  float maximum = -INFINITY, sum = 0;

  template <int W>
  __device__ void add(const Pack<W>& value) {
    float greatest = value.v[0];
#pragma unroll
    for (int j = 1; j < W; ++j) greatest = fmaxf(greatest, value.v[j]);
    if (greatest > maximum) {
      sum *= exp_of<T>(maximum - greatest);
      maximum = greatest;
    }
#pragma unroll
    for (int j = 0; j < W; ++j) sum += exp_of<T>(value.v[j] - maximum);
  }
};

/// Reads a row of logits once, into shared memory where it fits (`is_kept`), and goes on from
/// there.
template <int W, typename T>
__global__ void cross_entropy(CrossEntropy x, bool is_kept) {
  extern __shared__ uint4 shared[];
  __shared__ float scratch[2][32];
  const int64_t row = blockIdx.x, target = x.targets[row];
  const T* logits = static_cast<const T*>(x.logits.data) + row * x.columns;
  T* const kept = reinterpret_cast<T*>(shared);
  const float own = to_float(logits[target]);
  Exponentials<T> own_share;
#pragma unroll 4
  for (int64_t i = threadIdx.x * W; i < x.columns; i += kRowThreads * W) {
    const auto value = load<W>(logits + i);
    if (is_kept) store<W>(kept + i, value);
    own_share.add(value);
  }
  if (is_kept) logits = kept;  // of which each thread reads what it wrote
  const float maximum = block_max(own_share.maximum, scratch[0]);
  const float share = own_share.sum * exp_of<T>(own_share.maximum - maximum);
  const float sum = block_sum(share, scratch[1]);
  if (threadIdx.x == 0) x.loss[row] = logf(sum) - (own - maximum);
  if (x.weight == nullptr) return;
  T* const dlogits = static_cast<T*>(x.dlogits.data) + row * x.columns;
  const float weight = x.weight[row], factor = weight / sum;
  for (int64_t i = threadIdx.x * W; i < x.columns; i += kRowThreads * W) {
    auto value = load<W>(logits + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      value.v[j] = factor * exp_of<T>(value.v[j] - maximum) - (i + j == target ? weight : 0.0F);
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
