// The backward pass of attention on any GPU, in two passes, so that each sum is computed by one
// block in a fixed order: over queries for keys and values, over keys for queries. Both recompute
// the scores.
//
//   P = exp(scale · q · kᵀ - log_sum)      dP = dout · vᵀ       delta = sum(out · dout)
//   dS = P · (kept · dP - delta)
//   dv = (kept · P)ᵀ · dout                dk = scale · dSᵀ · q  dq = scale · dS · k
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/block.cuh"

namespace ferry::kernels::cuda {

namespace {

/// delta of a row, by a warp.
__global__ void delta_kernel(const __grid_constant__ AttentionBackward x, float* delta) {
  const AttentionShape& s = x.shape;
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= s.sequences * s.heads * s.queries) return;
  const int64_t query = row % s.queries, head = row / s.queries % s.heads;
  const int64_t at = head_start(s, x.output_strides, row / s.queries / s.heads, head) +
                     query * x.output_strides.position;
  float sum = 0;
  for (int64_t d = threadIdx.x % 32; d < s.value_dim; d += 32) {
    sum = fmaf(element(x.output, at + d), element(x.doutput, at + d), sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) delta[row] = sum;
}

/// Replaces a score by the (dropped out) probability, and the probability's gradient by the
/// score's.
template <typename T>
__device__ void differentiate(float& score, float& gradient, float scale, float log_sum,
                              float delta, bool sees, float counts) {
  const float power = Products<T>::power(score * scale - log_sum);
  const float probability = sees ? power : 0;
  gradient = probability * (counts * gradient - delta);
  score = counts * probability;
}

/// The log_sum in units of Products' powers; 0 for a query without visible keys.
template <typename T>
__device__ float in_units(float log_sum) {
  return log_sum == -INFINITY ? 0 : log_sum * Products<T>::kUnit;
}

/// Writes the thread's rows of a tile, times `factor`, to `to`.
template <int W>
__device__ void write_rows(const Tile<W>& tile, const Array& to, int64_t start, int64_t stride,
                           int row, int64_t rows, int columns, float factor, bool accumulate) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= rows) continue;
    const int64_t at = start + (row + 8 * r) * stride;
#pragma unroll
    for (int j = 0; j < W / 8; ++j) {
      const int column = 8 * j + 2 * (threadIdx.x % 4);
      if (column >= columns) continue;
      store_pair(to, at + column, factor * tile[j][2 * r], factor * tile[j][2 * r + 1],
                 column + 1 < columns, accumulate);
    }
  }
}

/// Computes W columns of dq for 16 queries per warp.
template <typename T, int W>
__global__ void __launch_bounds__(kMostThreads)
    query_kernel(const __grid_constant__ AttentionBackward x, const float* delta, int tiles) {
  constexpr int kKeys = Products<T>::kColumns;
  const AttentionShape& s = x.shape;
  const QueryTile at(s, tiles);
  const auto dim = static_cast<int>(s.dim), value_dim = static_cast<int>(s.value_dim);
  const int first_column = W * static_cast<int>(blockIdx.y);
  const int columns = min(W, dim - first_column);
  const int stride = padded_stride<T>(dim), value_stride = padded_stride<T>(value_dim);

  extern __shared__ __align__(16) unsigned char memory[];
  T* const queries = reinterpret_cast<T*>(memory);
  T* const doutputs = queries + at.rows * stride;
  T* const keys = doutputs + at.rows * value_stride;
  T* const values = keys + kKeys * stride;
  const int64_t q_start = head_start(s, x.q_strides, at.sequence, at.head);
  load_rows(queries, stride, x.q, q_start + at.query * x.q_strides.position, x.q_strides.position,
            at.rows, s.queries - at.query, dim);
  load_rows(
      doutputs, value_stride, x.doutput,
      head_start(s, x.output_strides, at.sequence, at.head) + at.query * x.output_strides.position,
      x.output_strides.position, at.rows, s.queries - at.query, value_dim);

  const int own = at.own_row();
  const Interval seen[2] = {visible_keys(s, at.sequence, own),
                            visible_keys(s, at.sequence, own + 8)};
  const Bounds bounds = block_bounds(seen);
  const int64_t row = (at.sequence * s.heads + at.head) * s.queries;
  float own_log_sum[2] = {}, own_delta[2] = {};
  for (int r = 0; r < 2; ++r) {
    if (own + 8 * r >= s.queries) continue;
    own_log_sum[r] = in_units<T>(x.log_sum[row + own + 8 * r]);
    own_delta[r] = delta[row + own + 8 * r];
  }
  const int64_t k_start = group_start(x.k_strides, at.sequence, at.group);
  const int64_t v_start = group_start(x.v_strides, at.sequence, at.group);
  const float scale = static_cast<float>(s.scale) * Products<T>::kUnit;
  Tile<W> dqueries;
  clear<W>(dqueries);
  for (int key = bounds.begin / kKeys * kKeys; key < bounds.end; key += kKeys) {
    __syncthreads();  // the tile before is no longer read
    load_rows(keys, stride, x.k, k_start + key * x.k_strides.position, x.k_strides.position, kKeys,
              s.keys - key, dim);
    load_rows(values, value_stride, x.v, v_start + key * x.v_strides.position, x.v_strides.position,
              kKeys, s.keys - key, value_dim);
    __syncthreads();
    Tile<kKeys> scores, gradients;
    clear<kKeys>(scores);
    clear<kKeys>(gradients);
    Products<T>::template of_rows<kKeys>(scores, queries + at.warp_row() * stride, stride, keys,
                                         stride, padded_depth(dim));
    Products<T>::template of_rows<kKeys>(gradients, doutputs + at.warp_row() * value_stride,
                                         value_stride, values, value_stride,
                                         padded_depth(value_dim));
    const bool sees_all = bounds.all_see(key, kKeys);
    float counts = 1;
    uint32_t kept_bits = ~0U;
    if (s.dropout > 0) {
      const Kept kept(s, at.sequence, at.head);
      counts = kept.scale;
      kept_bits = kept.bits(kKeys / 2, [&](int i, int& query, int& number) {
        query = own + i % 4 / 2 * 8;
        number = key + i / 4 * 8 + 2 * static_cast<int>(threadIdx.x % 4) + i % 2;
      });
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int r = i % 4 / 2, number = key + i / 4 * 8 + 2 * (threadIdx.x % 4) + i % 2;
      const bool sees = sees_all || (number >= seen[r].first && number < seen[r].last);
      differentiate<T>(scores[i / 4][i % 4], gradients[i / 4][i % 4], scale, own_log_sum[r],
                       own_delta[r], sees, kept_bits >> i & 1 ? counts : 0);
    }
    Products<T>::template of_columns<kKeys, W>(dqueries, gradients, keys + first_column, stride,
                                               padded_depth(columns));
  }
  write_rows<W>(dqueries, x.dq, q_start + first_column, x.q_strides.position, own, s.queries,
                columns, static_cast<float>(s.scale), x.accumulate);
}

/// Per-query values of a tile of queries, besides its rows.
template <int N>
struct QueryNumbers {
  float log_sum[N], delta[N];
  Interval seen[N];
};

/// Computes W columns of dk and dv for 16 keys per warp, over the heads of their group in ascending
/// order.
template <typename T, int W>
__global__ void __launch_bounds__(kMostThreads)
    key_kernel(const __grid_constant__ AttentionBackward x, const float* delta, int tiles) {
  constexpr int kQueries = Products<T>::kColumns;
  const AttentionShape& s = x.shape;
  const auto dim = static_cast<int>(s.dim), value_dim = static_cast<int>(s.value_dim);
  const int rows = static_cast<int>(blockDim.x) / 2;
  const int64_t group = blockIdx.x / tiles % s.groups, sequence = blockIdx.x / tiles / s.groups;
  const int key = static_cast<int>(blockIdx.x % tiles) * rows;
  const int first_column = W * static_cast<int>(blockIdx.y);
  const int columns = min(W, dim - first_column);
  const int value_columns = min(W, value_dim - first_column);
  const int stride = padded_stride<T>(dim), value_stride = padded_stride<T>(value_dim);
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int own = key + warp_row + static_cast<int>(threadIdx.x) % 32 / 4;

  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ QueryNumbers<kQueries> numbers;
  T* const keys = reinterpret_cast<T*>(memory);
  T* const values = keys + rows * stride;
  T* const queries = values + rows * value_stride;
  T* const doutputs = queries + kQueries * stride;
  const int64_t k_start = group_start(x.k_strides, sequence, group);
  const int64_t v_start = group_start(x.v_strides, sequence, group);
  load_rows(keys, stride, x.k, k_start + key * x.k_strides.position, x.k_strides.position, rows,
            s.keys - key, dim);
  load_rows(values, value_stride, x.v, v_start + key * x.v_strides.position, x.v_strides.position,
            rows, s.keys - key, value_dim);

  Tile<W> dkeys, dvalues;
  clear<W>(dkeys);
  clear<W>(dvalues);
  const float scale = static_cast<float>(s.scale) * Products<T>::kUnit;
  const int64_t per_group = s.heads / s.groups;
  // The first query at or after the first key's position.
  const int64_t before = s.key_begin + key - s.query_begin;
  const int64_t begin = before < 0 ? 0 : before / kQueries * kQueries;
  for (int64_t head = group * per_group; head < (group + 1) * per_group; ++head) {
    const int64_t row = (sequence * s.heads + head) * s.queries;
    const int64_t q_start = head_start(s, x.q_strides, sequence, head);
    const int64_t o_start = head_start(s, x.output_strides, sequence, head);
    for (int64_t query = begin; query < s.queries; query += kQueries) {
      __syncthreads();  // the tile before is no longer read
      bool is_seen = false;
      if (threadIdx.x < kQueries) {
        const auto i = static_cast<int>(threadIdx.x);
        const int64_t number = query + i;
        const Interval seen = visible_keys(s, sequence, static_cast<int>(number));
        is_seen = seen.first < key + rows && seen.last > key;
        numbers.seen[i] = seen;
        numbers.log_sum[i] = number < s.queries ? in_units<T>(x.log_sum[row + number]) : 0;
        numbers.delta[i] = number < s.queries ? delta[row + number] : 0;
      }
      if (!__syncthreads_or(is_seen)) continue;
      load_rows(queries, stride, x.q, q_start + query * x.q_strides.position, x.q_strides.position,
                kQueries, s.queries - query, dim);
      load_rows(doutputs, value_stride, x.doutput, o_start + query * x.output_strides.position,
                x.output_strides.position, kQueries, s.queries - query, value_dim);
      __syncthreads();
      Tile<kQueries> scores, gradients;
      clear<kQueries>(scores);
      clear<kQueries>(gradients);
      Products<T>::template of_rows<kQueries>(scores, keys + warp_row * stride, stride, queries,
                                              stride, padded_depth(dim));
      Products<T>::template of_rows<kQueries>(gradients, values + warp_row * value_stride,
                                              value_stride, doutputs, value_stride,
                                              padded_depth(value_dim));
      float counts = 1;
      uint32_t kept_bits = ~0U;
      if (s.dropout > 0) {
        const Kept kept(s, sequence, head);
        counts = kept.scale;
        kept_bits = kept.bits(kQueries / 2, [&](int i, int& of_query, int& number) {
          of_query = static_cast<int>(query) + i / 4 * 8 + 2 * (threadIdx.x % 4) + i % 2;
          number = own + i % 4 / 2 * 8;
        });
      }
#pragma unroll
      for (int i = 0; i < kQueries / 2; ++i) {
        const int number = own + i % 4 / 2 * 8;
        const int column = i / 4 * 8 + 2 * (threadIdx.x % 4) + i % 2;
        const Interval seen = numbers.seen[column];
        differentiate<T>(scores[i / 4][i % 4], gradients[i / 4][i % 4], scale,
                         numbers.log_sum[column], numbers.delta[column],
                         number >= seen.first && number < seen.last,
                         kept_bits >> i & 1 ? counts : 0);
      }
      Products<T>::template of_columns<kQueries, W>(dvalues, scores, doutputs + first_column,
                                                    value_stride, padded_depth(value_columns));
      Products<T>::template of_columns<kQueries, W>(dkeys, gradients, queries + first_column,
                                                    stride, padded_depth(columns));
    }
  }
  write_rows<W>(dkeys, x.dk, k_start + first_column, x.k_strides.position, own, s.keys, columns,
                static_cast<float>(s.scale), x.accumulate);
  write_rows<W>(dvalues, x.dv, v_start + first_column, x.v_strides.position, own, s.keys,
                value_columns, 1, x.accumulate);
}

template <typename T, int W>
void launch(Device& device, const AttentionBackward& x, const float* delta) {
  const AttentionShape& s = x.shape;
  constexpr int kColumns = Products<T>::kColumns;
  const auto bytes = [&](int warps) {
    return sizeof(T) * (16 * warps + kColumns) *
           (padded_stride<T>(s.dim) + padded_stride<T>(s.value_dim));
  };
  const int warps =
      most_warps(device, [&](int count) { return bytes(count) + sizeof(QueryNumbers<kColumns>); });
  const auto blocks = [&](int64_t positions, int64_t heads, int64_t width) {
    return dim3(static_cast<unsigned>(ceil_div(positions, 16 * warps) * heads * s.sequences),
                static_cast<unsigned>(ceil_div(width, W)));
  };
  allow_shared_memory(key_kernel<T, W>, bytes(warps));
  if (s.keys > 0) {
    key_kernel<T, W>
        <<<blocks(s.keys, s.groups, std::max(s.dim, s.value_dim)), 32 * warps, bytes(warps),
           device.stream()>>>(x, delta, static_cast<int>(ceil_div(s.keys, 16 * warps)));
  }
  allow_shared_memory(query_kernel<T, W>, bytes(warps));
  if (s.queries > 0) {
    query_kernel<T, W>
        <<<blocks(s.queries, s.heads, s.dim), 32 * warps, bytes(warps), device.stream()>>>(
            x, delta, static_cast<int>(ceil_div(s.queries, 16 * warps)));
  }
  check_launch("gradients of attention");
}

}  // namespace

void run(Device& device, const AttentionBackward& x) {
  const AttentionShape& s = x.shape;
  if (s.sequences * s.heads == 0) return;
  if (hopper_backward(device, x)) return;
  const int64_t rows = s.sequences * s.heads * s.queries;
  float* const delta = device.floats(rows);
  if (rows > 0) {
    delta_kernel<<<static_cast<unsigned>(ceil_div(32 * rows, kThreads)), kThreads, 0,
                   device.stream()>>>(x, delta);
  }
  with_type(common_type({x.q, x.k, x.v, x.doutput}), [&]<typename T>(T*) {
    if (s.dim <= 64 && s.value_dim <= 64) {
      launch<T, 64>(device, x, delta);
    } else {
      launch<T, 128>(device, x, delta);
    }
  });
}

}  // namespace ferry::kernels::cuda
