// Biases of experts: one for each group of rows.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

/// Per-group arguments of one launch, as many as fit in kernel arguments.
constexpr int kGroups = 128;
template <typename Pointer>
struct GroupPointers {
  Pointer of[kGroups];
};

/// The group of a row among those of a launch, or -1.
__device__ int group_of(const int64_t* offsets, int groups, int64_t row) {
  if (row < offsets[0] || row >= offsets[groups]) return -1;
  int low = 0, high = groups;  // the last group that begins at the row or before it
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (offsets[middle] <= row ? low : high) = middle;
  }
  return low;
}

__device__ float scale_of(const float* row_scale, int64_t row) {
  return row_scale ? row_scale[row] : 1.0F;
}

/// A warp for each row.
template <int W, typename T>
__global__ void add_bias(const __grid_constant__ GroupedBias x,
                         const __grid_constant__ GroupPointers<const void*> bias, int first_group,
                         int groups) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= x.rows) return;
  const int group = group_of(x.offsets + first_group, groups, row);
  if (group < 0) return;
  const float scale = scale_of(x.row_scale, row);
  const T* const own = static_cast<const T*>(bias.of[group]);
  T* const y = static_cast<T*>(x.y.data) + row * x.width;
  for (int64_t i = threadIdx.x % 32 * W; i < x.width; i += 32 * W) {
    auto value = load<W>(y + i);
    const auto more = load<W>(own + i);
#pragma unroll
    for (int j = 0; j < W; ++j) value.v[j] += scale * more.v[j];
    store<W>(y + i, value);
  }
}

/// A block for each group and 32 columns: each warp sums every eighth row.
constexpr int kWarps = kThreads / 32;
template <typename T>
__global__ void sum_rows(const __grid_constant__ GroupedBiasGradient x,
                         const __grid_constant__ GroupPointers<void*> dbias, Type type,
                         int first_group) {
  __shared__ float sums[kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = blockIdx.y * int64_t{32} + lane;
  const int64_t begin = x.offsets[first_group + blockIdx.x];
  const int64_t end = x.offsets[first_group + blockIdx.x + 1];
  float sum = 0;
  if (column < x.width) {
    const T* const dy = static_cast<const T*>(x.dy.data) + column;
#pragma unroll 4
    for (int64_t row = begin + warp; row < end; row += kWarps) {
      sum += scale_of(x.row_scale, row) * to_float(dy[row * x.width]);
    }
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= x.width) return;
  const Array to(dbias.of[blockIdx.x], type);
  float total = x.accumulate ? element(to, column) : 0.0F;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += sums[w][lane];
  set_element(to, column, total);
}

/// A warp for each row.
template <typename T>
__global__ void add_row_scales(const __grid_constant__ GroupedBiasGradient x,
                               const __grid_constant__ GroupPointers<const void*> bias,
                               int first_group, int groups) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= x.rows) return;
  const int group = group_of(x.offsets + first_group, groups, row);
  if (group < 0) return;
  const T* const own = static_cast<const T*>(bias.of[group]);
  const T* const dy = static_cast<const T*>(x.dy.data) + row * x.width;
  float product = 0;
  for (int64_t i = threadIdx.x % 32; i < x.width; i += 32) {
    product += to_float(dy[i]) * to_float(own[i]);
  }
  product = warp_sum(product);
  if (threadIdx.x % 32 == 0) x.drow_scale[row] += product;
}

/// Calls f(first group, number of groups, their pointers).
template <typename Pointer, typename Arrays, typename F>
void in_launches(const Arrays& arrays, const F& f) {
  for (size_t first = 0; first < arrays.size(); first += kGroups) {
    const auto groups = static_cast<int>(std::min<size_t>(kGroups, arrays.size() - first));
    GroupPointers<Pointer> pointers{};
    for (int i = 0; i < groups; ++i) pointers.of[i] = arrays[first + static_cast<size_t>(i)].data;
    f(static_cast<int>(first), groups, pointers);
  }
}

unsigned blocks_of(int64_t rows) { return static_cast<unsigned>(ceil_div(32 * rows, kThreads)); }

}  // namespace

void run(Device& device, const GroupedBias& x) {
  if (x.rows == 0 || x.width == 0) return;
  bool packed = is_packed({x.y.data}, {x.width});
  for (const ConstArray& bias : x.bias) packed = packed && is_packed({bias.data}, {});
  with_type(x.y.type, [&]<typename T>(T*) {
    with_pack(packed, [&](auto pack) {
      constexpr int kWidth = decltype(pack)::value;
      in_launches<const void*>(x.bias, [&](int first, int groups, const auto& bias) {
        add_bias<kWidth, T>
            <<<blocks_of(x.rows), kThreads, 0, device.stream()>>>(x, bias, first, groups);
      });
    });
  });
  check_launch("biases of groups");
}

void run(Device& device, const GroupedBiasGradient& x) {
  if (x.width == 0 || x.dbias.empty()) return;
  const Type type = x.dbias.front().type;
  const auto strips = static_cast<unsigned>(ceil_div(x.width, 32));
  with_type(x.dy.type, [&]<typename T>(T*) {
    in_launches<void*>(x.dbias, [&](int first, int groups, const auto& dbias) {
      sum_rows<T><<<dim3(static_cast<unsigned>(groups), strips), kThreads, 0, device.stream()>>>(
          x, dbias, type, first);
    });
    if (x.drow_scale == nullptr || x.rows == 0) return;
    in_launches<const void*>(x.bias, [&](int first, int groups, const auto& bias) {
      add_row_scales<T>
          <<<blocks_of(x.rows), kThreads, 0, device.stream()>>>(x, bias, first, groups);
    });
  });
  check_launch("gradient of biases of groups");
}

}  // namespace ferry::kernels::cuda
