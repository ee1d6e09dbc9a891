// How the backward pass in one pass deals out its work, and gradients of keys and values by parts
// of a group's heads.
//
// A block of keys goes over the queries that see it and adds to their gradients behind the block of
// the keys that follow (hopper_sums.cuh). What several blocks add to should still be in the cache
// when the next one comes. It is where they begin one after another: those of later keys, which
// meet fewer queries, come to a group's next head first, and the further ahead the more heads a
// block goes over. Large groups are therefore dealt out in parts, whose gradients, in fp32, are
// added up by rising part afterwards. Smaller blocks leave less to wait for at the end, too.
#pragma once

#include "kernels/cuda/attention/hopper_sums.cuh"

namespace ferry::kernels::cuda {

struct KeyParts {
  /// [sequence, group, part, block of keys, warpgroup], each in the order of the threads that
  /// write; none where there is one part.
  float *keys, *values;
  int count;  // of a group
  /// Parts whose blocks are dealt out by turns: those of a head begin a little apart. A set has as
  /// many blocks as run at once.
  int set;

  __device__ int rows(const AttentionShape& s) const {
    return static_cast<int>(s.sequences * s.groups) * count;
  }
};

/// A block has 64 keys of a group; blockIdx.y says whether their gradients or those of their
/// values.
template <int D>
__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(const __grid_constant__ AttentionBackward x, KeyParts parts, int tiles) {
  const AttentionShape& s = x.shape;
  const int row = static_cast<int>(blockIdx.x) / tiles, tile = static_cast<int>(blockIdx.x) % tiles;
  const int sequence = row / static_cast<int>(s.groups);
  const int group = row - sequence * static_cast<int>(s.groups);
  const bool is_keys = blockIdx.y == 0;
  const Array& to = is_keys ? x.dk : x.dv;
  const HeadStrides& strides = is_keys ? x.k_strides : x.v_strides;
  const int64_t columns = is_keys ? s.dim : s.value_dim;
  const float value_factor = s.dropout > 0 ? Kept(s, 0, 0).scale : 1;
  const float factor = is_keys ? static_cast<float>(s.scale) : value_factor;
  using Order = ThreadOrder<D>;
  const int64_t of_part = int64_t{tiles} * Order::kElements;
  const float* const from = (is_keys ? parts.keys : parts.values) + row * parts.count * of_part +
                            int64_t{tile} * Order::kElements;
  const int64_t start = group_start(strides, sequence, group);
  for (auto i = static_cast<int>(threadIdx.x); i < Order::kUnits; i += kThreads) {
    const Order order(i);
    if (order.column >= columns) continue;
    float values[2][8] = {};
    for (int part = 0; part < parts.count; ++part) order.add(from + part * of_part, values);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = tile * kSumRows + order.row + 8 * r;
      if (key >= s.keys) continue;
#pragma unroll
      for (float& each : values[r]) each *= factor;
      write_eight(to, start + key * strides.position + order.column, values[r], x.accumulate);
    }
  }
}

template <int D>
void add_parts(Device& device, const AttentionBackward& x, const KeyParts& parts) {
  const AttentionShape& s = x.shape;
  const auto tiles = static_cast<int>(ceil_div(s.keys, kSumKeys) * (kSumKeys / kSumRows));
  const dim3 blocks(static_cast<unsigned>(s.sequences * s.groups * tiles), 2);
  add_parts_kernel<D><<<blocks, kThreads, 0, device.stream()>>>(x, parts, tiles);
  check_launch("gradients of attention's keys by parts");
}

}  // namespace ferry::kernels::cuda
