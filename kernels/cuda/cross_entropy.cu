// One block of threads per row of logits.
#include <cuda_pipeline.h>

#include <cfloat>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

constexpr int kRowThreads = 512;

/// e^(x - greatest), as exact as 16-bit logits can represent, or to fp32 precision.
template <typename T>
class ShiftedExp {
 public:
  /// Clamped to the lowest finite number: -inf minus -inf would be NaN.
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

/// value.v[place] -= weight, if `place` is valid.
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

/// A thread's part of a sum of exponentials relative to the maximum.
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

/// Converts a row's logits to gradients, once its maximum and its sum are known.
template <typename T>
struct RowGradient {
  T* dlogits;
  int target;
  float weight, factor;
  ShiftedExp<T> power;

  template <int W>
  __device__ void store_at(int i, Pack<W> value) const {
#pragma unroll
    for (int j = 0; j < W; ++j) value.v[j] = factor * power(value.v[j]);
    subtract_at(target - i, weight, value);
    store<W>(dlogits + i, value);
  }
};

/// A block's row parameters. They are read before the logits: after the barriers all threads would
/// wait for them.
struct Row {
  int target;
  float target_logit, weight;

  template <typename T>
  __device__ static Row of(const CrossEntropy& x, const T* logits) {
    const int target = x.targets[blockIdx.x];
    return {target, to_float(logits[target]), x.weight ? x.weight[blockIdx.x] : 0.0F};
  }
};

/// Writes the row's loss and returns how to compute its gradient. Called by all threads of the
/// block.
template <typename T>
__device__ RowGradient<T> finish_row(const CrossEntropy& x, const Row& row,
                                     const Exponentials<T>& own_share) {
  __shared__ float scratch[2][32];
  const float maximum = block_max(own_share.maximum, scratch[0]);
  const ShiftedExp<T> power(maximum);
  const float sum = block_sum(own_share.sum * power(own_share.maximum), scratch[1]);
  if (threadIdx.x == 0) x.loss[blockIdx.x] = logf(sum) - (row.target_logit - maximum);
  return {static_cast<T*>(x.dlogits.data) + int64_t{blockIdx.x} * x.columns, row.target, row.weight,
          row.weight / sum, power};
}

/// Reads a row of logits once, except those after the first `kept`, which do not fit in shared
/// memory and are read again for the gradient.
template <int W, typename T>
__global__ void cross_entropy(CrossEntropy x, int kept) {
  extern __shared__ uint4 shared[];
  const int columns = static_cast<int>(x.columns);
  const T* const logits = static_cast<const T*>(x.logits.data) + int64_t{blockIdx.x} * columns;
  StoredPack<W, T>* const kept_logits = reinterpret_cast<StoredPack<W, T>*>(shared);
  const Row row = Row::of(x, logits);
  Exponentials<T> own_share;
#pragma unroll 4
  for (int i = threadIdx.x * W; i < columns; i += kRowThreads * W) {
    const auto stored = load_stored<W>(logits + i);
    if (i < kept) kept_logits[i / W] = stored;
    own_share.add(to_pack<W>(stored));
  }
  const auto gradient = finish_row(x, row, own_share);
  if (x.weight == nullptr) return;
#pragma unroll 2
  for (int i = threadIdx.x * W; i < columns; i += kRowThreads * W) {
    // Each thread reads only what it wrote itself.
    gradient.store_at(i, to_pack<W>(i < kept ? kept_logits[i / W] : load_stored<W>(logits + i)));
  }
}

/// Packs of a row per thread that are kept in registers.
constexpr int kPacksInRegisters = 12;
/// A thread's packs in flight to shared memory, at most what __pipeline_wait_prior() supports.
constexpr int kPacksAhead = 9;

/// The same, with the gradient, for rows of 16-bit logits that fit in shared memory and registers
/// together: those after the first `kept` are in registers. A multiprocessor has one such row at a
/// time. Each thread reads only what it kept itself.
template <typename T>
__global__ void __launch_bounds__(kRowThreads, 1)
    cross_entropy_of_long_row(CrossEntropy x, int kept) {
  extern __shared__ uint4 shared[];
  using Stored = StoredPack<kPack, T>;
  constexpr int kStep = kRowThreads * kPack;
  const int columns = static_cast<int>(x.columns), own = static_cast<int>(threadIdx.x) * kPack;
  const T* const logits = static_cast<const T*>(x.logits.data) + int64_t{blockIdx.x} * columns;
  const auto ask = [&](int i) {
    if (i < kept) __pipeline_memcpy_async(shared + i / kPack, logits + i, sizeof(Stored));
    __pipeline_commit();
  };
  Stored rest[kPacksInRegisters];
#pragma unroll
  for (int k = 0; k < kPacksInRegisters; ++k) {
    const int i = kept + own + k * kStep;
    if (i < columns) rest[k] = load_stored<kPack>(logits + i);
  }
  for (int k = 0; k < kPacksAhead; ++k) ask(own + k * kStep);
  const Row row = Row::of(x, logits);
  Exponentials<T> own_share;
#pragma unroll
  for (int k = 0; k < kPacksInRegisters; ++k) {
    if (kept + own + k * kStep < columns) own_share.add(to_pack<kPack>(rest[k]));
  }
  const auto kept_pack = [&](int i) {
    return to_pack<kPack>(reinterpret_cast<const Stored*>(shared)[i / kPack]);
  };
  for (int i = own; i < kept; i += kStep) {
    __pipeline_wait_prior(kPacksAhead - 1);
    own_share.add(kept_pack(i));
    ask(i + kPacksAhead * kStep);
  }
  const auto gradient = finish_row(x, row, own_share);
#pragma unroll 2
  for (int i = own; i < kept; i += kStep) gradient.store_at(i, kept_pack(i));
#pragma unroll
  for (int k = 0; k < kPacksInRegisters; ++k) {
    const int i = kept + own + k * kStep;
    if (i < columns) gradient.store_at(i, to_pack<kPack>(rest[k]));
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
      constexpr int64_t kSize = sizeof(T), kSums = 2048;  // leaves room for the block's own sums
      const int64_t most = device.shared_memory() - kSums;
      const auto launch = [&](auto* kernel, int64_t kept) {
        allow_shared_memory(kernel, static_cast<size_t>(most));
        const auto shared = static_cast<size_t>(ceil_div(kept * kSize, 16) * 16);
        kernel<<<static_cast<unsigned>(x.rows), kRowThreads, shared, device.stream()>>>(
            x, static_cast<int>(kept));
      };
      if (x.weight == nullptr) return launch(cross_entropy<kWidth, T>, 0);
      if (x.columns * kSize <= most) return launch(cross_entropy<kWidth, T>, x.columns);
      if constexpr (kWidth == kPack && kSize == 2) {
        const int64_t kept = most / kSize / kPack * kPack;
        if (x.columns - kept <= int64_t{kPacksInRegisters} * kRowThreads * kPack) {
          return launch(cross_entropy_of_long_row<T>, kept);
        }
      }
      // For longer rows, keeps only so much that two blocks fit, one of which reads while the other
      // writes.
      launch(cross_entropy<kWidth, T>, (most / 2 - kSums) / kSize / kWidth * kWidth);
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
