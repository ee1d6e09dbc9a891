// The forward pass of attention on any GPU: a block processes 16 queries per warp and iterates over
// their visible keys tile by tile. Scores and sums of values stay in registers.
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/block.cuh"
#include "kernels/cuda/attention/softmax.cuh"

namespace ferry::kernels::cuda {

namespace {

/// Online softmax: replaces scores by powers relative to the running maximum and rescales sums and
/// outputs.
template <typename T, int W>
__device__ void online_softmax(Tile<Products<T>::kColumns>& scores, float scale,
                               const Interval (&seen)[2], bool sees_all, int key,
                               RunningRows& running, Tile<W>& outputs) {
  constexpr int kBlocks = Products<T>::kColumns / 8;
  const int column = key + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float greatest = running.greatest[r];
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[j][2 * r + e];
        const int number = column + 8 * j + e;
        const bool sees = sees_all || (number >= seen[r].first && number < seen[r].last);
        score = sees ? score * scale : -INFINITY;
        greatest = fmaxf(greatest, score);
      }
    }
    greatest = row_max(greatest);
    // Without visible keys so far the maximum is minus infinity, which must not be subtracted.
    const float base = greatest == -INFINITY ? 0 : greatest;
    const float before = Products<T>::power(running.greatest[r] - base);
    float sum = running.sum[r] * before;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[j][2 * r + e];
        score = Products<T>::power(score - base);
        sum += score;
      }
    }
#pragma unroll
    for (int j = 0; j < W / 8; ++j) {
      outputs[j][2 * r] *= before;
      outputs[j][2 * r + 1] *= before;
    }
    running.greatest[r] = greatest;
    running.sum[r] = sum;
  }
}

/// W: output columns per block; blockIdx.y selects them.
template <typename T, int W>
__global__ void __launch_bounds__(kMostThreads)
    forward_kernel(const __grid_constant__ AttentionForward x, int tiles) {
  constexpr int kKeys = Products<T>::kColumns;
  const AttentionShape& s = x.shape;
  const QueryTile at(s, tiles);
  const auto dim = static_cast<int>(s.dim);
  const int first_column = W * static_cast<int>(blockIdx.y);
  const int columns = min(W, static_cast<int>(s.value_dim) - first_column);
  const int stride = padded_stride<T>(dim), value_stride = padded_stride<T>(columns);

  extern __shared__ __align__(16) unsigned char memory[];
  T* const queries = reinterpret_cast<T*>(memory);
  T* const keys = queries + at.rows * stride;
  T* const values = keys + kKeys * stride;
  load_rows(queries, stride, x.q,
            head_start(s, x.q_strides, at.sequence, at.head) + at.query * x.q_strides.position,
            x.q_strides.position, at.rows, s.queries - at.query, dim);

  const Interval seen[2] = {visible_keys(s, at.sequence, at.own_row()),
                            visible_keys(s, at.sequence, at.own_row() + 8)};
  const Bounds bounds = block_bounds(seen);
  const int64_t k_start = group_start(x.k_strides, at.sequence, at.group);
  const int64_t v_start = group_start(x.v_strides, at.sequence, at.group) + first_column;
  const float scale = static_cast<float>(s.scale) * Products<T>::kUnit;
  RunningRows running;
  Tile<W> outputs;
  clear<W>(outputs);
  for (int key = bounds.begin / kKeys * kKeys; key < bounds.end; key += kKeys) {
    __syncthreads();  // the tile before is no longer read
    load_rows(keys, stride, x.k, k_start + key * x.k_strides.position, x.k_strides.position, kKeys,
              s.keys - key, dim);
    load_rows(values, value_stride, x.v, v_start + key * x.v_strides.position, x.v_strides.position,
              kKeys, s.keys - key, columns);
    __syncthreads();
    Tile<kKeys> scores;
    clear<kKeys>(scores);
    Products<T>::template of_rows<kKeys>(scores, queries + at.warp_row() * stride, stride, keys,
                                         stride, padded_depth(dim));
    online_softmax<T, W>(scores, scale, seen, bounds.all_see(key, kKeys), key, running, outputs);
    if (s.dropout > 0) {
      const Kept kept(s, at.sequence, at.head);
      const uint32_t bits = kept.bits(kKeys / 2, [&](int i, int& query, int& number) {
        query = at.own_row() + i % 4 / 2 * 8;
        number = key + i / 4 * 8 + 2 * static_cast<int>(threadIdx.x % 4) + i % 2;
      });
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) scores[i / 4][i % 4] *= bits >> i & 1 ? kept.scale : 0;
    }
    Products<T>::template of_columns<kKeys, W>(outputs, scores, values, value_stride,
                                               padded_depth(columns));
  }

  float log_sum[2], divisor[2];
  running.finish<T>(log_sum, divisor);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int query = at.own_row() + 8 * r;
    if (query >= s.queries) continue;
    const int64_t to = head_start(s, x.output_strides, at.sequence, at.head) +
                       query * x.output_strides.position + first_column;
#pragma unroll
    for (int j = 0; j < W / 8; ++j) {
      const int column = 8 * j + 2 * (threadIdx.x % 4);
      if (column >= columns) continue;
      store_pair(x.output, to + column, outputs[j][2 * r] * divisor[r],
                 outputs[j][2 * r + 1] * divisor[r], column + 1 < columns, false);
    }
    if (x.log_sum && blockIdx.y == 0 && threadIdx.x % 4 == 0) {
      x.log_sum[(at.sequence * s.heads + at.head) * s.queries + query] = log_sum[r];
    }
  }
}

template <typename T, int W>
void launch(Device& device, const AttentionForward& x) {
  const AttentionShape& s = x.shape;
  constexpr int kKeys = Products<T>::kColumns;
  const auto width = std::min<int64_t>(s.value_dim, W);
  const int warps = most_warps(device, [&](int count) {
    return sizeof(T) *
           ((16 * count + kKeys) * padded_stride<T>(s.dim) + kKeys * padded_stride<T>(width));
  });
  const auto bytes = sizeof(T) * ((16 * warps + kKeys) * padded_stride<T>(s.dim) +
                                  kKeys * padded_stride<T>(width));
  const int64_t tiles = ceil_div(s.queries, 16 * warps);
  const dim3 grid(static_cast<unsigned>(tiles * s.heads * s.sequences),
                  static_cast<unsigned>(ceil_div(s.value_dim, W)));
  allow_shared_memory(forward_kernel<T, W>, bytes);
  forward_kernel<T, W><<<grid, 32 * warps, bytes, device.stream()>>>(x, static_cast<int>(tiles));
  check_launch("attention");
}

/// Merges a part of a row into the whole, by a warp.
__global__ void merge_kernel(const __grid_constant__ AttentionMerge x) {
  const AttentionShape& s = x.shape;
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= s.sequences * s.heads * s.queries) return;
  const int64_t query = row % s.queries, head = row / s.queries % s.heads;
  const float a = x.log_sum[row], b = x.part_log_sum[row];
  const float greatest = fmaxf(a, b);
  if (greatest == -INFINITY) return;
  const float sum = greatest + logf(expf(a - greatest) + expf(b - greatest));
  const float of_a = expf(a - sum), of_b = expf(b - sum);
  const int64_t at = head_start(s, x.output_strides, row / s.queries / s.heads, head) +
                     query * x.output_strides.position;
  for (int64_t d = threadIdx.x % 32; d < s.value_dim; d += 32) {
    x.output[at + d] = of_a * x.output[at + d] + of_b * x.part[at + d];
  }
  __syncwarp();  // all have read it
  if (threadIdx.x % 32 == 0) x.log_sum[row] = sum;
}

}  // namespace

void run(Device& device, const AttentionForward& x) {
  const AttentionShape& s = x.shape;
  if (s.sequences * s.heads * s.queries == 0) return;
  if (hopper_forward(device, x)) return;
  with_type(common_type({x.q, x.k, x.v}), [&]<typename T>(T*) {
    if (s.value_dim <= 64) {
      launch<T, 64>(device, x);
    } else {
      launch<T, 128>(device, x);
    }
  });
}

void run(Device& device, const AttentionMerge& x) {
  const int64_t rows = x.shape.sequences * x.shape.heads * x.shape.queries;
  if (rows == 0) return;
  merge_kernel<<<static_cast<unsigned>(ceil_div(32 * rows, kThreads)), kThreads, 0,
                 device.stream()>>>(x);
  check_launch("merge of attention");
}

}  // namespace ferry::kernels::cuda
