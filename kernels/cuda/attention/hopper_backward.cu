// The backward pass of attention for Hopper (backward.cu has the formulas).
#include "kernels/cuda/attention/hopper_keys.cuh"
#include "kernels/cuda/attention/hopper_one_pass.cuh"
#include "kernels/cuda/attention/hopper_queries.cuh"

namespace ferry::kernels::cuda {

namespace {

/// log_sum in powers of two, and delta, of rows padded to kRowBlock: a missing row, or one without
/// visible keys, gets infinity, which makes its probabilities zero. A block has 64 queries of a
/// head; LANES threads process a row. Also clears the sums.
template <int LANES>
__global__ void prepare_kernel(const __grid_constant__ AttentionBackward x, RowNumbers rows,
                               int* zeros, int zero_count) {
  const AttentionShape& s = x.shape;
  const auto all_heads = static_cast<uint32_t>(s.sequences * s.heads);
  const uint32_t tile = blockIdx.x / all_heads, row = blockIdx.x - tile * all_heads;
  const uint32_t sequence = row / static_cast<uint32_t>(s.heads);
  const auto thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (thread < zero_count) zeros[thread] = 0;
  const int64_t start =
      head_start(s, x.output_strides, sequence, row - sequence * static_cast<uint32_t>(s.heads));
  const int lane = static_cast<int>(threadIdx.x) % LANES;
  constexpr int kRows = kThreads / LANES;
#pragma unroll
  for (int first = 0; first < 64; first += kRows) {
    const int query = static_cast<int>(tile) * 64 + first + static_cast<int>(threadIdx.x) / LANES;
    const bool is_there = query < s.queries;
    float sum = 0;
    if (is_there && 8 * lane < s.value_dim) {
      const int64_t at = start + query * x.output_strides.position + 8 * lane;
      const auto a = load_eight(x.output, at), b = load_eight(x.doutput, at);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(a.v[i], b.v[i], sum);
    }
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2) {
      sum += __shfl_xor_sync(0xffffffffU, sum, lanes);
    }
    if (lane != 0) continue;
    const float log_sum = is_there ? x.log_sum[row * s.queries + query] : -INFINITY;
    const int64_t to = rows.at(row * rows.padded + query);
    rows.log_sum[to] = log_sum == -INFINITY ? INFINITY : log_sum * kLog2e;
    rows.delta[to] = sum;
  }
}

void prepare(Device& device, const AttentionBackward& x, const RowNumbers& rows, int* zeros,
             int64_t zero_count) {
  const AttentionShape& s = x.shape;
  const auto blocks = static_cast<unsigned>(s.sequences * s.heads * (rows.padded / 64));
  const auto count = static_cast<int>(zero_count);
  if (s.value_dim <= 64) {
    prepare_kernel<8><<<blocks, kThreads, 0, device.stream()>>>(x, rows, zeros, count);
  } else {
    prepare_kernel<16><<<blocks, kThreads, 0, device.stream()>>>(x, rows, zeros, count);
  }
  check_launch("sums of attention's gradients");
}

/// The backward pass in one pass, for heads of at most D columns.
template <typename T, int D, int STAGES, int KEY_STAGES, int SUM_STAGES, int SCORE_STAGES,
          bool DROPS = false>
void launch_together(Device& device, const AttentionBackward& x) {
  const AttentionShape& s = x.shape;
  const AttentionWorkspace sizes = one_pass_workspace(s, D);
  const int64_t tiles = ceil_div(s.queries, kSumRows);
  float* const memory = device.floats(sizes.count());
  const RowNumbers numbers{memory, memory + 2, padded_queries(s), true};
  float* const all_sums = memory + 2 * sizes.rows;
  float* const key_sums = all_sums + sizes.query_sums;
  const auto key_blocks = static_cast<int>(ceil_div(s.keys, kSumKeys));
  const KeyParts parts{key_sums, key_sums + sizes.key_sums, sizes.parts,
                       std::max(1, device.multiprocessors() / key_blocks)};
  auto* const turns = reinterpret_cast<int*>(key_sums + 2 * sizes.key_sums);
  int* const last = turns + sizes.turns;
  const QuerySums query_sums{all_sums, turns, last - 2, last - 1, static_cast<int>(tiles)};
  prepare(device, x, numbers, turns, sizes.turns);
  launch_one_pass<T, D, STAGES, KEY_STAGES, SUM_STAGES, SCORE_STAGES, DROPS>(device, x, numbers,
                                                                             query_sums, parts);
}

template <typename T>
void launch_together(Device& device, const AttentionBackward& x) {
  const AttentionShape& s = x.shape;
  const int columns = register_columns(s);
  if (s.dropout > 0 && columns == 64) {
    launch_together<T, 64, 3, 2, 2, 3, true>(device, x);
  } else if (s.dropout > 0) {
    launch_together<T, 128, 3, 1, 1, 2, true>(device, x);
  } else if (columns == 64) {
    launch_together<T, 64, 3, 2, 2, 3>(device, x);
  } else if (columns == 96) {
    launch_together<T, 96, 3, 1, 1, 2>(device, x);
  } else {
    launch_together<T, 128, 2, 1, 2, 2>(device, x);
  }
}

/// The backward pass in two passes, which both compute the scores; without dropout.
template <typename T>
void launch_apart(Device& device, const AttentionBackward& x) {
  const AttentionShape& s = x.shape;
  const AttentionWorkspace sizes = two_pass_workspace(s);
  float* const numbers = device.floats(sizes.count());
  const RowNumbers rows{numbers, numbers + sizes.rows, padded_queries(s), false};
  prepare(device, x, rows, nullptr, 0);
  if (s.dim <= 64 && s.value_dim <= 64) {
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

template <typename T>
void launch(Device& device, const AttentionBackward& x) {
  if (is_in_one_pass(x.shape)) {
    launch_together<T>(device, x);
  } else {
    launch_apart<T>(device, x);
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
