// Rounding to 8-bit floating-point numbers, and scales.
#include <algorithm>
#include <span>

#include "kernels/cuda/float8_tiles.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

/// Matrices of one launch.
constexpr int kMatrices = 128;
template <typename T>
struct Matrices {
  const T* of[kMatrices];
};

/// A row of blocks for each matrix.
template <int W, typename T>
__global__ void greatest_magnitude(int64_t count, const __grid_constant__ Matrices<T> matrices,
                                   float* maxima) {
  __shared__ float scratch[32];
  const T* const x = matrices.of[blockIdx.y];
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x * W;
  float most = 0;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * W; i < count;
       i += stride) {
    const auto value = load<W>(x + i);
#pragma unroll
    for (int j = 0; j < W; ++j) most = fmaxf(most, fabsf(value.v[j]));
  }
  most = block_max(most, scratch);
  if (threadIdx.x == 0 && most > 0) raise(maxima + blockIdx.y, most);
}

/// Calls f(matrices, first, count) for as many at a time as a launch takes.
template <typename T, typename F>
void in_parts(std::span<const ConstArray> x, const F& f) {
  for (size_t first = 0; first < x.size(); first += kMatrices) {
    Matrices<T> part{};
    const size_t count = std::min(x.size() - first, size_t{kMatrices});
    for (size_t i = 0; i < count; ++i) part.of[i] = elements<T>(x[first + i]);
    f(part, first, static_cast<unsigned>(count));
  }
}

bool are_packed(std::span<const ConstArray> x) {
  return std::all_of(x.begin(), x.end(),
                     [](const ConstArray& a) { return is_packed({a.data}, {}); });
}

/// A maximum of each matrix.
void raise_maxima(Device& device, int64_t count, std::span<const ConstArray> x, float* maxima) {
  if (count == 0 || x.empty()) return;
  with_type(x.front().type, [&]<typename T>(T*) {
    with_pack(are_packed(x) && is_packed({}, {count}), [&](auto w) {
      constexpr int kWidth = w;
      const unsigned grid = grid_of(device, ceil_div(count, int64_t{kThreads} * kWidth));
      in_parts<T>(x, [&](const Matrices<T>& part, size_t first, unsigned matrices) {
        greatest_magnitude<kWidth>
            <<<dim3((grid + matrices - 1) / matrices, matrices), kThreads, 0, device.stream()>>>(
                count, part, maxima + first);
      });
    });
  });
  check_launch("greatest magnitude");
}

__device__ Float8Scale scale_of(float factor) {
  const float finite = fminf(factor, FLT_MAX);
  return {__frcp_rn(finite), finite};
}

__device__ bool is_positive(float number) { return number > 0 && number <= FLT_MAX; }

struct ScaleByMaximum {
  const float* maximum;
  Float8Scale* scale;
  float most;
  __device__ void operator()(int64_t i) const {
    scale[i] = is_positive(maximum[i]) ? scale_of(__fdiv_rn(most, maximum[i])) : Float8Scale{1, 1};
  }
};

struct MoveHistory {
  DelayedScales x;
  float most;
  __device__ void operator()(int64_t i) const {
    const float newest = x.maximum[i];
    if (newest == 0) return;
    float number = newest;
    for (int64_t age = x.length - 1; age > 0; --age) {
      const float older = x.history[(age - 1) * x.count + i];
      x.history[age * x.count + i] = older;
      if (!x.takes_newest && older > number) number = older;
    }
    x.history[i] = newest;
    x.maximum[i] = 0;
    if (is_positive(number)) x.scale[i] = scale_of(__fdiv_rn(most, number));
  }
};

/// What is rounded as it is.
template <typename T>
struct Elements {
  static constexpr int kParts = 1;
  const T* x;
  int64_t width;

  struct Read {
    StoredPack<kPack, T> x;
  };
  __device__ Read read(int64_t row, int64_t column) const {
    return {load_stored<kPack>(x + row * width + column)};
  }
  __device__ void values(const Read& read, int64_t, int64_t, Pack<kPack> (&values)[kParts]) const {
    values[0] = to_pack<kPack>(read.x);
  }
};

/// The output of matrix number `index`.
__host__ __device__ Float8Output output_of(Float8Output to, const Float8Scale* scales,
                                           int64_t elements, int64_t index) {
  if (to.by_row != nullptr) to.by_row += index * elements;
  if (to.by_column != nullptr) to.by_column += index * elements;
  if (to.scale == nullptr) to.scale = scales + index;
  return to;
}

template <Float8 format, typename T>
__global__ void __launch_bounds__(kThreads)
    quantize_matrices(int64_t rows, int64_t width, const __grid_constant__ Matrices<T> matrices,
                      Float8Output to, const Float8Scale* scales) {
  quantize_tile<format>(rows, width, output_of(to, scales, rows * width, blockIdx.z),
                        Elements<T>{matrices.of[blockIdx.z], width});
}

template <typename T>
struct QuantizeElement {
  int64_t rows, width;
  const T* x;
  Float8Output to;
  __device__ void operator()(int64_t i) const {
    const auto code = static_cast<uint8_t>(code_of(to_float(x[i]), to.scale->factor, to.format));
    if (to.by_row != nullptr) to.by_row[i] = code;
    if (to.by_column != nullptr) to.by_column[i % width * rows + i / width] = code;
  }
};

template <typename T>
void quantize_each(Device& device, const QuantizeEach& x) {
  const int64_t count = x.rows * x.width;
  in_parts<T>(x.x, [&](const Matrices<T>& part, size_t first, unsigned matrices) {
    const Float8Output to = output_of(x.to, x.scales, count, static_cast<int64_t>(first));
    const Float8Scale* const scales = x.to.scale == nullptr ? x.scales + first : nullptr;
    if (are_packed(x.x) && is_tiled(x.rows, x.width, {}, x.to)) {
      const auto kernel = x.to.format == Float8::e4m3 ? quantize_matrices<Float8::e4m3, T>
                                                      : quantize_matrices<Float8::e5m2, T>;
      dim3 grid = tiles_of(x.rows, x.width);
      grid.z = matrices;
      Float8Output start = to;
      if (scales != nullptr) start.scale = nullptr;
      kernel<<<grid, kThreads, 0, device.stream()>>>(x.rows, x.width, part, start, scales);
      return check_launch("rounding to 8 bits");
    }
    for (unsigned i = 0; i < matrices; ++i) {
      if (to.maximum != nullptr) raise_maxima(device, count, x.x.subspan(first + i, 1), to.maximum);
      each(device, count,
           QuantizeElement<T>{x.rows, x.width, part.of[i],
                              output_of(x.to, x.scales, count, static_cast<int64_t>(first + i))},
           "rounding to 8 bits");
    }
  });
}

/// Reads 128 rows of the codes of a group, several tiles of columns one after the other, and writes
/// them along columns. The blocks of a row of the grid look for their group together.
__global__ void __launch_bounds__(kThreads) transpose_rows(GroupedTranspose x) {
  static_assert(kTileRows == kFloat8Columns);
  __shared__ __align__(16) uint32_t by_row[kTileRows * kRowWords];
  __shared__ uint32_t by_column[kTileColumns * kColumnWords];
  __shared__ int64_t begin, end;
  if (threadIdx.x == 0) begin = end = 0;
  __syncthreads();
  const int64_t first_row = int64_t{blockIdx.y} * kTileRows;  // of the result's columns
  for (int64_t group = threadIdx.x; group < x.groups; group += kThreads) {
    const int64_t own = x.offsets[group], next = x.offsets[group + 1];
    const int64_t before = first_row - grouped_column(group, own);
    if (before < 0 || before >= next - own) continue;
    begin = own + before;
    end = next;
  }
  __syncthreads();
  if (begin == end) return;
  constexpr int kOfRow = kTileColumns / 16, kEach = kTileRows * kOfRow / kThreads;
  const int column = static_cast<int>(threadIdx.x) % kOfRow * 16;
  int64_t from[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t row = begin + (threadIdx.x + i * kThreads) / kOfRow;
    from[i] = row >= end ? -1 : x.index == nullptr ? row : x.index[row] / x.divisor;
  }
  for (int64_t first = int64_t{blockIdx.x} * kTileColumns; first < x.width;
       first += int64_t{gridDim.x} * kTileColumns) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      uint4 codes{0, 0, 0, 0};
      if (from[i] >= 0 && first + column < x.width) {
        codes = *reinterpret_cast<const uint4*>(x.x + from[i] * x.width + first + column);
      }
      auto* const to = reinterpret_cast<uint2*>(
          by_row + (threadIdx.x + i * kThreads) / kOfRow * kRowWords + column / 4);
      to[0] = make_uint2(codes.x, codes.y);
      to[1] = make_uint2(codes.z, codes.w);
    }
    __syncthreads();
    write_columns(by_row, by_column, x.y, grouped_columns(x.groups, x.rows), x.width, first_row,
                  first);
    __syncthreads();
  }
}

}  // namespace

void run(Device& device, const AbsoluteMaximum& x) {
  check(cudaMemsetAsync(x.maximum, 0, sizeof(float), device.stream()), "clearing");
  raise_maxima(device, x.count, {&x.x, 1}, x.maximum);
}

void run(Device& device, const CurrentScale& x) {
  each(device, 1, ScaleByMaximum{x.maximum, x.scale, greatest(x.format)}, "scale");
}

void run(Device& device, const DelayedScales& x) {
  each(device, x.count, MoveHistory{x, greatest(x.format) * x.share}, "delayed scales");
}

void run(Device& device, const Quantize& x) {
  run(device, QuantizeEach{.rows = x.rows, .width = x.width, .x = {&x.x, 1}, .to = x.to});
}

void run(Device& device, const QuantizeEach& x) {
  if (x.rows == 0 || x.width == 0 || x.x.empty()) return;
  if (x.to.scale == nullptr) {
    const auto count = static_cast<int64_t>(x.x.size());
    float* const maxima = device.floats(count);
    check(cudaMemsetAsync(maxima, 0, x.x.size() * sizeof(float), device.stream()), "clearing");
    raise_maxima(device, x.rows * x.width, x.x, maxima);
    each(device, count, ScaleByMaximum{maxima, x.scales, greatest(x.to.format)}, "scales");
  }
  with_type(x.x.front().type, [&]<typename T>(T*) { quantize_each<T>(device, x); });
}

void run(Device& device, const GroupedTranspose& x) {
  const int64_t columns = grouped_columns(x.groups, x.rows);
  if (columns == 0 || x.width == 0) return;
  // Blocks that process several tiles of columns look for their rows once.
  dim3 grid = tiles_of(columns, x.width);
  grid.x = (grid.x + 3) / 4;
  transpose_rows<<<grid, kThreads, 0, device.stream()>>>(x);
  check_launch("transposing rows by groups");
}

}  // namespace ferry::kernels::cuda
