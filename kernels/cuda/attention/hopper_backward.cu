// The backward pass of attention for Hopper, as two passes that each make their sums alone, in one
// order (backward.cu has the formulas): nothing is added to by several blocks.
#include "kernels/cuda/attention/hopper_keys.cuh"
#include "kernels/cuda/attention/hopper_queries.cuh"

namespace ferry::kernels::cuda {

namespace {

/// log_sum in powers of two, and delta, of rows padded to kRowBlock: a row that is not there, or
/// sees no key, gets infinity, which makes its probabilities zero.
__global__ void prepare_kernel(const __grid_constant__ AttentionBackward x, RowNumbers rows) {
  const AttentionShape& s = x.shape;
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 16;
  if (row >= s.sequences * s.heads * rows.padded) return;
  const int64_t query = row % rows.padded, head = row / rows.padded;
  const bool is_there = query < s.queries;
  float sum = 0;
  if (is_there) {
    const int64_t at = head_start(s, x.output_strides, head / s.heads, head % s.heads) +
                       query * x.output_strides.position;
    for (int64_t d = 8 * (threadIdx.x % 16); d < s.value_dim; d += 128) {
      const auto a = load_eight(x.output, at + d), b = load_eight(x.doutput, at + d);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(a.v[i], b.v[i], sum);
    }
  }
#pragma unroll
  for (int lanes = 8; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, lanes);
  if (threadIdx.x % 16 != 0) return;
  const float log_sum = is_there ? x.log_sum[head * s.queries + query] : -INFINITY;
  rows.log_sum[row] = log_sum == -INFINITY ? INFINITY : log_sum * kLog2e;
  rows.delta[row] = sum;
}

template <typename T>
void launch(Device& device, const AttentionBackward& x) {
  const AttentionShape& s = x.shape;
  const int64_t padded = ceil_div(s.queries, kRowBlock) * kRowBlock;
  const int64_t count = s.sequences * s.heads * padded;
  float* const numbers = device.floats(2 * count);
  const RowNumbers rows{numbers, numbers + count, padded};
  prepare_kernel<<<static_cast<unsigned>(ceil_div(16 * count, kThreads)), kThreads, 0,
                   device.stream()>>>(x, rows);
  check_launch("sums of attention's gradients");
  const bool is_narrow = s.dim <= 64 && s.value_dim <= 64;
  if (s.dropout > 0 && is_narrow) {
    launch_keys<T, 64, 64, 64, 4, true>(device, x, rows);
    launch_queries<T, 64, 64, 128, 3, true>(device, x, rows);
  } else if (s.dropout > 0) {
    launch_keys<T, 128, 128, 64, 3, true>(device, x, rows);
    launch_queries<T, 128, 128, 96, 3, true>(device, x, rows);
  } else if (is_narrow) {
    launch_keys<T, 64, 64, 64, 4>(device, x, rows);
    launch_queries<T, 64, 64, 128, 3>(device, x, rows);
  } else if (s.dim <= 96 && s.value_dim <= 96) {
    launch_keys<T, 96, 96, 64, 3>(device, x, rows);
    launch_queries<T, 96, 96, 96, 3>(device, x, rows);
  } else if (s.dim <= 128) {
    launch_keys<T, 128, 128, 64, 3>(device, x, rows);
    launch_queries<T, 128, 128, 96, 3>(device, x, rows);
  } else {
    launch_keys<T, 192, 128, 32, 4>(device, x, rows);
    launch_queries<T, 192, 128, 64, 3>(device, x, rows);
  }
}

}  // namespace

bool hopper_backward(Device& device, const AttentionBackward& x) {
  const AttentionShape& s = x.shape;
  const Type type = x.q.type;
  const auto queries = query_dimensions(s, x.q_strides);
  const auto outputs = query_dimensions(s, x.output_strides);
  if (type != x.k.type || type != x.v.type || type != x.doutput.type ||
      !is_for_hopper(device, s, type) || !takes_tensor(x.q, s.dim, queries) ||
      !takes_tensor(x.k, s.dim, key_dimensions(s, x.k_strides)) ||
      !takes_tensor(x.v, s.value_dim, key_dimensions(s, x.v_strides)) ||
      !takes_tensor(x.doutput, s.value_dim, outputs) ||
      reinterpret_cast<uintptr_t>(x.output.data) % 16 != 0 || !takes_packs(x.dq, x.q_strides) ||
      !takes_packs(x.dk, x.k_strides) || !takes_packs(x.dv, x.v_strides)) {
    return false;
  }
  if (type == Type::bf16) {
    launch<bf16>(device, x);
  } else {
    launch<half>(device, x);
  }
  return true;
}

}  // namespace ferry::kernels::cuda
