// Gradients of queries, summed in fp32 by the blocks of their keys. Every tile of 64 queries of a
// head has its sums in global memory, as two halves, each computed by one warpgroup of each block.
// Blocks add to a half in turn, in descending order of keys; a counter has the number of blocks so
// far. The order depends only on the mask, so sums have the same bits regardless of timing. A block
// waits only for blocks of later keys, whose work was assigned before its own.
#pragma once

#include "kernels/cuda/attention/hopper_key_work.cuh"
#include "kernels/cuda/hopper/ptx.cuh"
#include "kernels/gpu_attention.h"

namespace ferry::kernels::cuda {

struct QuerySums {
  float* sums;  // [sequence, head, tile, half], each in the order of the adding threads
  int* turns;   // [sequence, head, tile, half]: how many blocks have added
  int *next_item, *next_tile;  // of the blocks' work
  int tiles;                   // of a head
};

/// The blocks of keys, [first, last], visible to queries of a tile; none if first > last.
struct SeenBlocks {
  int first, last;

  __device__ SeenBlocks(const AttentionShape& s, int64_t sequence, int tile) {
    const int begin = tile * kSumRows;
    const int end = last_key(s, min(begin + kSumRows, static_cast<int>(s.queries)) - 1);
    first = first_key(s, sequence, begin) / kSumKeys;
    last = end > 0 ? (end - 1) / kSumKeys : -1;
  }
};

/// A thread that adds a warpgroup's results from shared memory. Its turn ends when the sums are in
/// memory, which it waits for as late as possible.
class Adder {
 public:
  /// The warpgroup has filled `part` once `full` has that parity.
  __device__ void add(float* sums, const float* part, int bytes, int* turn, int own_turn,
                      uint64_t* full, int parity, uint64_t* free) {
    int now = ptx::read_turn(turn);
    if (turn_ && (now != own_turn || !ptx::is_over(full, parity))) finish();
    while (now != own_turn) now = ptx::read_turn(turn);
    ptx::wait(full, parity);
    ptx::fence_global();
    if (own_turn == 0) {
      ptx::write_bytes(sums, part, bytes);
    } else {
      ptx::add_bytes(sums, part, bytes);
    }
    ptx::end_writes();
    ptx::wait_reads();
    ptx::arrive(free);
    if (turn_) {
      ptx::wait_writes<1>();
      pass_on();
    }
    turn_ = turn;
    next_turn_ = own_turn + 1;
  }
  __device__ void finish() {
    if (!turn_) return;
    ptx::wait_writes<0>();
    pass_on();
    turn_ = nullptr;
  }

 private:
  __device__ void pass_on() const {
    ptx::fence_global();
    ptx::set_turn(turn_, next_turn_);
  }

  int* turn_ = nullptr;  // not passed on yet
  int next_turn_ = 0;
};

template <typename T>
__device__ inline void write_eight(T* to, const float (&values)[8], bool accumulate) {
  Pack<8> pack;
  if (accumulate) pack = load<8>(to);
#pragma unroll
  for (int i = 0; i < 8; ++i) pack.v[i] = accumulate ? pack.v[i] + values[i] : values[i];
  store<8>(to, pack);
}
__device__ inline void write_eight(const Array& to, int64_t at, const float (&values)[8],
                                   bool accumulate) {
  if (to.type == Type::f32) {
    write_eight(static_cast<float*>(to.data) + at, values, accumulate);
  } else if (to.type == Type::bf16) {
    write_eight(static_cast<bf16*>(to.data) + at, values, accumulate);
  } else {
    write_eight(static_cast<half*>(to.data) + at, values, accumulate);
  }
}

/// A warpgroup's matrix of 64 rows in memory, in thread order: written without transposing and read
/// back as 8 columns of two rows.
template <int COLUMNS>
struct ThreadOrder {
  static constexpr int kElements = 64 * COLUMNS;
  static constexpr int kUnits = 4 * COLUMNS;  // of 8 columns of two rows

  static __device__ void write(const float (&sums)[COLUMNS / 2], float* to) {
    auto* const fours = reinterpret_cast<float4*>(to) + static_cast<int>(threadIdx.x) % 128;
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; ++i) {
      fours[128 * i] = {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]};
    }
  }

  int column, row;  // the first column, and the first of two rows that are 8 apart
  int first;        // float4

  __device__ explicit ThreadOrder(int unit) {
    const int block = unit % (COLUMNS / 8), rows = unit / (COLUMNS / 8);
    column = 8 * block;
    row = rows / 8 * 16 + rows % 8;
    first = block * 128 + rows * 4;
  }
  __device__ void add(const float* from, float (&values)[2][8]) const {
    const auto* const fours = reinterpret_cast<const float4*>(from) + first;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float4 four = __ldcg(fours + c);
      values[0][2 * c] += four.x;
      values[0][2 * c + 1] += four.y;
      values[1][2 * c] += four.z;
      values[1][2 * c + 1] += four.w;
    }
  }
};

/// Computes the gradients of a tile's queries from its sums, by a warp. A thread has 8 columns of
/// two rows, which four threads added to.
template <int D>
__device__ inline void write_gradients(const AttentionBackward& x, const QuerySums& all,
                                       int number) {
  constexpr int kColumns = half_columns(D), kBlocks = kColumns / 8;
  const AttentionShape& s = x.shape;
  const int row = number / all.tiles, tile = number - row * all.tiles;
  const int sequence = row / static_cast<int>(s.heads);
  const int head = row - sequence * static_cast<int>(s.heads);
  const SeenBlocks seen(s, sequence, tile);
  const int count = max(seen.last - seen.first + 1, 0);
  for (int half = 0; half < 2; ++half) {
    while (ptx::read_turn(all.turns + 2 * number + half) != count) {
    }
  }
  ptx::fence_global();
  using Order = ThreadOrder<kColumns>;
  const float* const sums = all.sums + int64_t{number} * 2 * Order::kElements;
  const auto factor = static_cast<float>(s.scale);
  const int64_t start = head_start(s, x.q_strides, sequence, head);
#pragma unroll 2
  for (auto i = static_cast<int>(threadIdx.x) % 32; i < 2 * Order::kUnits; i += 32) {
    // Alternates between the halves of two rows: their columns are adjacent.
    const int half = i % (2 * kBlocks) / kBlocks;
    const Order order(i / (2 * kBlocks) * kBlocks + i % kBlocks);
    const int column = half * kColumns + order.column;
    if (column >= s.dim) continue;
    float values[2][8] = {};
    if (count > 0) order.add(sums + half * Order::kElements, values);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = tile * kSumRows + order.row + 8 * r;
      if (query >= s.queries) continue;
#pragma unroll
      for (float& each : values[r]) each *= factor;
      write_eight(x.dq, start + query * x.q_strides.position + column, values[r], x.accumulate);
    }
  }
}

/// Warps of blocks without further keys write out the others' sums.
template <int D>
__device__ inline void write_all_gradients(const AttentionBackward& x, const QuerySums& all) {
  const AttentionShape& s = x.shape;
  const auto count = static_cast<int>(s.sequences * s.heads) * all.tiles;
  for (;;) {
    int number = 0;
    if (threadIdx.x % 32 == 0) number = atomicAdd(all.next_tile, 1);
    number = __shfl_sync(0xffffffffU, number, 0);
    if (number >= count) return;
    write_gradients<D>(x, all, number);
  }
}

}  // namespace ferry::kernels::cuda
