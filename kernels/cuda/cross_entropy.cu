// A block of threads takes a row of logits.
#include <cuda_pipeline.h>

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

/// What a row's logits become, once its greatest and its sum are known.
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

/// Writes the row's loss. All threads of the block call it; where weights are wanted the gradient
/// follows.
template <typename T>
__device__ RowGradient<T> finish_sum(const CrossEntropy& x, const Exponentials<T>& own_share,
                                     float target_logit) {
  __shared__ float scratch[2][32];
  const int64_t row = blockIdx.x;
  const float maximum = block_max(own_share.maximum, scratch[0]);
  const ShiftedExp<T> power(maximum);
  const float sum = block_sum(own_share.sum * power(own_share.maximum), scratch[1]);
  if (threadIdx.x == 0) x.loss[row] = logf(sum) - (target_logit - maximum);
  const float weight = x.weight ? x.weight[row] : 0.0F;
  return {static_cast<T*>(x.dlogits.data) + row * x.columns, x.targets[row], weight, weight / sum,
          power};
}

/// Reads a row of logits once, but for those behind the first `kept`, for which shared memory has
/// no room.
template <int W, typename T>
__global__ void cross_entropy(CrossEntropy x, int kept) {
  extern __shared__ uint4 shared[];
  const int columns = static_cast<int>(x.columns);
  const T* const logits = static_cast<const T*>(x.logits.data) + int64_t{blockIdx.x} * columns;
  StoredPack<W, T>* const kept_logits = reinterpret_cast<StoredPack<W, T>*>(shared);
  const float target_logit = to_float(logits[x.targets[blockIdx.x]]);
  Exponentials<T> own_share;
#pragma unroll 4
  for (int i = threadIdx.x * W; i < columns; i += kRowThreads * W) {
    const auto stored = load_stored<W>(logits + i);
    if (i < kept) kept_logits[i / W] = stored;
    own_share.add(to_pack<W>(stored));
  }
  const auto gradient = finish_sum(x, own_share, target_logit);
  if (x.weight == nullptr) return;
#pragma unroll 2
  for (int i = threadIdx.x * W; i < columns; i += kRowThreads * W) {
    // Of what is kept each thread reads what it wrote.
    gradient.store_at(i, to_pack<W>(i < kept ? kept_logits[i / W] : load_stored<W>(logits + i)));
  }
}

/// Packs of a row that a thread keeps in registers, and those on their way into shared memory.
constexpr int kPacksInRegisters = 12, kPacksAhead = 16;

/// The same for rows of 16-bit logits that shared memory and registers keep together: those behind
/// the first `kept` are in registers. A multiprocessor has one such row at a time.
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
  const float target_logit = to_float(logits[x.targets[blockIdx.x]]);
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
  const auto gradient = finish_sum(x, own_share, target_logit);
  if (x.weight == nullptr) return;
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
      const auto launch = [&](auto* kernel, int64_t kept) {
        const auto shared = static_cast<size_t>(ceil_div(kept * int64_t{sizeof(T)}, 16) * 16);
        allow_shared_memory(kernel, shared);
        kernel<<<static_cast<unsigned>(x.rows), kRowThreads, shared, device.stream()>>>(
            x, static_cast<int>(kept));
      };
      // The block's own sums take some of the memory, too.
      const int64_t most = (device.shared_memory() - 2048) / int64_t{sizeof(T)};
      if (x.weight == nullptr) return launch(cross_entropy<kWidth, T>, 0);
      if (x.columns <= most) return launch(cross_entropy<kWidth, T>, x.columns);
      if constexpr (kWidth == kPack && sizeof(T) == 2) {
        const int64_t kept = most / kPack * kPack;
        if (x.columns - kept <= int64_t{kPacksInRegisters} * kRowThreads * kPack) {
          return launch(cross_entropy_of_long_row<T>, kept);
        }
      }
      // Of longer rows so much is kept that two blocks fit, of which one reads while the other
      // writes.
      launch(cross_entropy<kWidth, T>, (most / 2 - 2048 / int64_t{sizeof(T)}) / kWidth * kWidth);
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
