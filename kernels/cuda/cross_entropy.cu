// A block of threads takes a row of logits.
#include <cfloat>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

constexpr int kRowThreads = 512;

/// e^(x - greatest) as exact as 16-bit logits can tell, or as fp32 is.
template <typename T>
class ShiftedExp {
 public:
  /// No less than the least number: nothing could be said of -inf less -inf.
  __device__ explicit ShiftedExp(float greatest) : shift_(fmaxf(greatest, -FLT_MAX)) {}
  __device__ float operator()(float x) const {
    if constexpr (std::is_same_v<T, float>) {
      return expf(x - shift_);
    } else {
      return power_of_two(kLog2e * (x - shift_));
    }
  }

 private:
  float shift_;
};

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
  const ShiftedExp<T> power(maximum);
  float sum = 0;
  for (int64_t i = threadIdx.x * W; i < x.columns; i += kRowThreads * W) {
    const auto value = load<W>(logits + i);
#pragma unroll
    for (int j = 0; j < W; ++j) sum += power(value.v[j]);
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x != 0) return;
  x.sum[row] = sum;
  const int64_t target = x.targets[row] - x.first_column;
  const bool is_here = target >= 0 && target < x.columns;
  x.target[row] = is_here ? to_float(logits[target]) - maximum : 0.0F;
}

/// value.v[place] -= weight, where there is such a place.
template <int W, typename Place>
__device__ void subtract_at(Place place, float weight, Pack<W>& value) {
  if (place < 0 || place >= W) return;
#pragma unroll
  for (int j = 0; j < W; ++j) value.v[j] -= j == place ? weight : 0.0F;
}

template <int W, typename T, typename D>
__global__ void gradient(CrossEntropyGradient x) {
  const int64_t row = blockIdx.x, start = row * x.columns;
  const T* const logits = static_cast<const T*>(x.logits.data) + start;
  D* const dlogits = static_cast<D*>(x.dlogits.data) + start;
  const ShiftedExp<T> power(x.maximum[row]);
  const float weight = x.weight[row], factor = weight / x.sum[row];
  const int64_t target = x.targets[row] - x.first_column;
  if (threadIdx.x == 0) x.loss[row] = logf(x.sum[row]) - x.target[row];
  for (int64_t i = threadIdx.x * W; i < x.columns; i += kRowThreads * W) {
    auto value = load<W>(logits + i);
#pragma unroll
    for (int j = 0; j < W; ++j) value.v[j] = factor * power(value.v[j]);
    subtract_at(target - i, weight, value);
    store<W>(dlogits + i, value);
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
      sum *= ShiftedExp<T>(greatest)(maximum);
      maximum = greatest;
    }
    const ShiftedExp<T> power(maximum);
#pragma unroll
    for (int j = 0; j < W; ++j) sum += power(value.v[j]);
  }
};

/// Reads a row of logits once, but for those behind the first `kept`, for which shared memory has
/// no room.
template <int W, typename T>
__global__ void cross_entropy(CrossEntropy x, int kept) {
  extern __shared__ uint4 shared[];
  __shared__ float scratch[2][32];
  const int64_t row = blockIdx.x;
  const int columns = static_cast<int>(x.columns), target = x.targets[row];
  const T* const logits = static_cast<const T*>(x.logits.data) + row * columns;
  StoredPack<W, T>* const kept_logits = reinterpret_cast<StoredPack<W, T>*>(shared);
  const float target_logit = to_float(logits[target]);
  Exponentials<T> own_share;
#pragma unroll 4
  for (int i = threadIdx.x * W; i < columns; i += kRowThreads * W) {
    const auto stored = load_stored<W>(logits + i);
    if (i < kept) kept_logits[i / W] = stored;
    own_share.add(to_pack<W>(stored));
  }
  const float maximum = block_max(own_share.maximum, scratch[0]);
  const ShiftedExp<T> power(maximum);
  const float sum = block_sum(own_share.sum * power(own_share.maximum), scratch[1]);
  if (threadIdx.x == 0) x.loss[row] = logf(sum) - (target_logit - maximum);
  if (x.weight == nullptr) return;
  T* const dlogits = static_cast<T*>(x.dlogits.data) + row * columns;
  const float weight = x.weight[row], factor = weight / sum;
#pragma unroll 2
  for (int i = threadIdx.x * W; i < columns; i += kRowThreads * W) {
    // Of what is kept each thread reads what it wrote.
    auto value = to_pack<W>(i < kept ? kept_logits[i / W] : load_stored<W>(logits + i));
#pragma unroll
    for (int j = 0; j < W; ++j) value.v[j] = factor * power(value.v[j]);
    subtract_at(target - i, weight, value);
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
      constexpr int kWidth = decltype(pack)::value;
      auto* const kernel = cross_entropy<kWidth, T>;
      const int64_t bytes = x.columns * size_bytes(x.logits.type);
      // The block's own sums take some of the memory, too. Of longer rows so much is kept that two
      // blocks fit, of which one reads while the other writes.
      const int64_t most = device.shared_memory() - 2048;
      int64_t kept = bytes <= most ? x.columns : (most / 2 - 2048) / size_bytes(x.logits.type);
      kept = x.weight ? kept / kWidth * kWidth : 0;
      const auto shared = static_cast<size_t>(ceil_div(kept * size_bytes(x.logits.type), 16) * 16);
      allow_shared_memory(kernel, shared);
      kernel<<<static_cast<unsigned>(x.rows), kRowThreads, shared, device.stream()>>>(
          x, static_cast<int>(kept));
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
