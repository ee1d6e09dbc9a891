// Learned scores of no key, after attention to all keys.
#include "kernels/cuda/attention/mask.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operations.h"

namespace ferry::kernels::cuda {

namespace {

/// A row of log_sum, [sequences, heads, queries], and where the query's output begins.
struct Row {
  int64_t number, head, output;

  template <typename X>
  __device__ Row(const X& x, int64_t row) : number(row) {
    const AttentionShape& s = x.shape;
    head = row / s.queries % s.heads;
    output = head_start(s, x.output_strides, row / s.queries / s.heads, head) +
             row % s.queries * x.output_strides.position;
  }
};

/// A warp for each row.
template <typename T>
__global__ void add_sink(const __grid_constant__ AttentionSink x, int64_t rows) {
  const int64_t number = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (number >= rows) return;
  const Row row(x, number);
  const float score = element(x.score, row.head), before = x.log_sum[number];
  const float greatest = fmaxf(score, before);
  const float sum = greatest + logf(expf(before - greatest) + expf(score - greatest));
  const float factor = expf(before - sum);
  T* const output = static_cast<T*>(x.output.data) + row.output;
  for (int64_t d = threadIdx.x % 32; d < x.shape.value_dim; d += 32) {
    output[d] = from_float<T>(factor * to_float(output[d]));
  }
  __syncwarp();  // all have read it
  if (threadIdx.x % 32 == 0) x.log_sum[number] = sum;
}

/// parts[row] = the row's part of its head's gradient, by a warp.
template <typename T>
__global__ void sink_parts(const __grid_constant__ AttentionSinkGradient x, int64_t rows,
                           float* parts) {
  const int64_t number = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (number >= rows) return;
  const Row row(x, number);
  const T* const output = static_cast<const T*>(x.output.data) + row.output;
  const T* const doutput = static_cast<const T*>(x.doutput.data) + row.output;
  float product = 0;
  for (int64_t d = threadIdx.x % 32; d < x.shape.value_dim; d += 32) {
    product += to_float(output[d]) * to_float(doutput[d]);
  }
  product = warp_sum(product);
  if (threadIdx.x % 32 != 0) return;
  parts[number] = -expf(element(x.score, row.head) - x.log_sum[number]) * product;
}

/// A block for each head adds up its rows.
__global__ void add_sink_parts(const __grid_constant__ AttentionSinkGradient x,
                               const float* parts) {
  __shared__ double scratch[32];
  const AttentionShape& s = x.shape;
  const int64_t head = blockIdx.x;
  double sum = 0;
  for (int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    const float* const own = parts + (sequence * s.heads + head) * s.queries;
    for (int64_t query = threadIdx.x; query < s.queries; query += blockDim.x) sum += own[query];
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x != 0) return;
  const float before = x.dscore.accumulate ? element(x.dscore.array, head) : 0.0F;
  set_element(x.dscore.array, head, before + static_cast<float>(sum));
}

unsigned blocks_of(int64_t rows) { return static_cast<unsigned>(ceil_div(32 * rows, kThreads)); }

}  // namespace

void run(Device& device, const AttentionSink& x) {
  const int64_t rows = x.shape.sequences * x.shape.heads * x.shape.queries;
  if (rows == 0) return;
  with_type(x.output.type, [&]<typename T>(T*) {
    add_sink<T><<<blocks_of(rows), kThreads, 0, device.stream()>>>(x, rows);
  });
  check_launch("scores of no key");
}

void run(Device& device, const AttentionSinkGradient& x) {
  const int64_t rows = x.shape.sequences * x.shape.heads * x.shape.queries;
  if (x.shape.heads == 0) return;
  float* const parts = device.floats(rows);
  if (rows > 0) {
    with_type(x.output.type, [&]<typename T>(T*) {
      sink_parts<T><<<blocks_of(rows), kThreads, 0, device.stream()>>>(x, rows, parts);
    });
  }
  add_sink_parts<<<static_cast<unsigned>(x.shape.heads), kThreads, 0, device.stream()>>>(x, parts);
  check_launch("gradient of scores of no key");
}

}  // namespace ferry::kernels::cuda
