// Producer and reducer of the one-pass backward pass: loading tiles and storing products.
#pragma once

#include "kernels/cuda/attention/hopper_key_work.cuh"
#include "kernels/cuda/attention/hopper_sums.cuh"

namespace ferry::kernels::cuda {

// Work distribution of the one-pass backward pass, and gradients of keys and values by parts of a
// group's heads.
//
// A block of keys iterates over the queries that attend to it and adds to their gradients after the
// block of the following keys (hopper_sums.cuh). Sums should still be in the cache when the next
// block adds to them. They are if blocks start one after another: blocks of later keys, which have
// fewer queries, reach a group's next head first, and get further ahead the more heads a block
// processes. Large groups are therefore split into parts, whose fp32 gradients are added in
// ascending order afterwards. Smaller blocks also reduce the wait at the end.

struct KeyParts {
  /// [sequence, group, part, block of keys, warpgroup], each in the order of the writing threads;
  /// null if there is one part.
  float *keys, *values;
  int count;  // of a group
  /// Parts whose blocks are assigned alternately, so that those of a head start slightly apart. A
  /// set has as many blocks as run at once.
  int set;

  __device__ int rows(const AttentionShape& s) const {
    return static_cast<int>(s.sequences * s.groups) * count;
  }
};

/// A block has 64 keys of a group; blockIdx.y selects key or value gradients.
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

/// D, V: columns of keys and of values, at least their dims. STAGES: of queries; KEY_STAGES: of
/// keys; SUM_STAGES: of products to add to the queries' gradients; SCORE_STAGES: of score
/// gradients.
template <int D, int V, int STAGES, int KEY_STAGES, int SUM_STAGES, int SCORE_STAGES>
struct OnePassTiles {
  static constexpr int kGroups = 2, kKeys = kSumKeys, kThreads = 128 * (kGroups + 1);
  static constexpr int kQueries = kSumRows, kColumns = half_columns(D);
  static constexpr int kKeyBytes = tile_bytes(kKeys, D), kValueBytes = tile_bytes(kKeys, V);
  static constexpr int kQueryBytes = tile_bytes(kQueries, D);
  static constexpr int kOutputBytes = tile_bytes(kQueries, V);
  static constexpr int kRowBytes = kQueries * 8;  // log_sum and delta
  static constexpr int kStageBytes = kQueryBytes + kOutputBytes;
  static constexpr int kStages = STAGES, kKeyStages = KEY_STAGES, kSumStages = SUM_STAGES;
  static constexpr int kScoreStages = SCORE_STAGES, kScoreBytes = tile_bytes(kQueries, kKeys);
  static constexpr int kHalf = kQueries * kColumns;  // elements
  static constexpr int kBytes = KEY_STAGES * (kKeyBytes + kValueBytes) +
                                STAGES * (kStageBytes + kRowBytes) + kScoreStages * kScoreBytes +
                                SUM_STAGES * kGroups * kHalf * 4 + 512;

  struct Maps {
    CUtensorMap q, k, v, doutput;
  };
  struct Barriers {
    uint64_t key_full[KEY_STAGES], key_free[KEY_STAGES], full[STAGES], free[STAGES];
    uint64_t scores_full[kScoreStages], scores_free[kScoreStages];
    uint64_t sum_full[kGroups][SUM_STAGES], sum_free[kGroups][SUM_STAGES];
    int items[KEY_STAGES];
  };
  static_assert(sizeof(Barriers) <= 512);
  struct Memory {
    unsigned char *keys, *values, *queries, *doutputs, *scores;
    float *sums, *rows;
    Barriers* barriers;
    __device__ explicit Memory(unsigned char* at)
        : keys(at),
          values(keys + KEY_STAGES * kKeyBytes),
          queries(values + KEY_STAGES * kValueBytes),
          doutputs(queries + STAGES * kQueryBytes),
          scores(doutputs + STAGES * kOutputBytes),
          sums(reinterpret_cast<float*>(scores + kScoreStages * kScoreBytes)),
          rows(sums + SUM_STAGES * kGroups * kHalf),
          barriers(reinterpret_cast<Barriers*>(rows + STAGES * 2 * kQueries)) {}
    __device__ float* half(int stage, int warpgroup) const {
      return sums + (stage * kGroups + warpgroup) * kHalf;
    }
  };

  /// A block of keys, and the heads of its group that it processes, [first_head, last_head).
  struct Work : KeyWork<kKeys, kQueries> {
    int first_head, last_head;
    int place;  // index of its gradients among those of all parts (KeyParts)

    __device__ Work(const AttentionShape& s, int parts, int row, int block, int blocks)
        : KeyWork<kKeys, kQueries>(s, row / parts, block), place(row * blocks + block) {
      const int heads = static_cast<int>(s.heads / s.groups) / parts;
      first_head = row % parts * heads;
      last_head = first_head + heads;
    }
    __device__ int heads() const { return last_head - first_head; }
    /// The index of a head of its group among all sequences' heads.
    __device__ int row_of(const AttentionShape& s, int head) const {
      const auto heads = static_cast<int>(s.heads), groups = static_cast<int>(s.groups);
      return this->sequence * heads + this->group * (heads / groups) + head;
    }
  };

  /// Items are assigned set by set, the last keys first: each query's last keys add first.
  static __device__ Work work_of(const AttentionShape& s, const KeyParts& parts, int item) {
    const int blocks = (static_cast<int>(s.keys) + kKeys - 1) / kKeys;
    const int of_set = parts.set * blocks, first = item / of_set * parts.set;
    const int rows = min(parts.set, parts.rows(s) - first), rest = item - first * blocks;
    return Work(s, parts.count, first + rest % rows, blocks - 1 - rest / rows, blocks);
  }

  static __device__ void copy(const AttentionShape& s, const Maps& maps, const RowNumbers& numbers,
                              const QuerySums& sums, const KeyParts& parts, int items,
                              const Memory& memory) {
    Barriers& barriers = *memory.barriers;
    StageCursor<STAGES> cursor;
    StageCursor<KEY_STAGES> keys;
    int item = atomicAdd(sums.next_item, 1);
    for (;; keys.next()) {
      uint64_t* const key_full = &barriers.key_full[keys.stage];
      ptx::wait(&barriers.key_free[keys.stage], keys.parity ^ 1);
      barriers.items[keys.stage] = item < items ? item : -1;
      if (item >= items) return ptx::arrive(key_full);
      const Work work = work_of(s, parts, item);
      ptx::arrive_and_expect(key_full, kKeyBytes + kValueBytes);
      copy_tile<D>(memory.keys + keys.stage * kKeyBytes, kKeys, &maps.k, key_full, work.key,
                   work.group, work.sequence);
      copy_tile<V>(memory.values + keys.stage * kValueBytes, kKeys, &maps.v, key_full, work.key,
                   work.group, work.sequence);
      for (int head = work.first_head; head < work.last_head; ++head) {
        const int64_t row = int64_t{work.row_of(s, head)} * numbers.padded;
        for (int tile = work.first_tile; tile < work.last_tile; ++tile, cursor.next()) {
          const int stage = cursor.stage, query = tile * kQueries;
          uint64_t* const full = &barriers.full[stage];
          ptx::wait(&barriers.free[stage], cursor.parity ^ 1);
          ptx::arrive_and_expect(full, kStageBytes + kRowBytes);
          copy_tile<D>(memory.queries + stage * kQueryBytes, kQueries, &maps.q, full, query, head,
                       work.group, work.sequence);
          copy_tile<V>(memory.doutputs + stage * kOutputBytes, kQueries, &maps.doutput, full, query,
                       head, work.group, work.sequence);
          ptx::copy_bytes(memory.rows + stage * 2 * kQueries, numbers.log_sum + 2 * (row + query),
                          kRowBytes, full);
        }
      }
      // Not earlier: a block that took an item early would delay others that wait for its sums.
      item = atomicAdd(sums.next_item, 1);
    }
  }

  /// One thread for each warpgroup that multiplies.
  static __device__ void add(const AttentionShape& s, const QuerySums& sums, const KeyParts& parts,
                             int warpgroup, const Memory& memory) {
    Barriers& barriers = *memory.barriers;
    StageCursor<KEY_STAGES> keys;
    StageCursor<SUM_STAGES> cursor;
    Adder adder;
    for (;; keys.next()) {
      ptx::wait(&barriers.key_full[keys.stage], keys.parity);
      const int item = barriers.items[keys.stage];
      ptx::arrive(&barriers.key_free[keys.stage]);
      if (item < 0) return;
      const Work work = work_of(s, parts, item);
      for (int head = work.first_head; head < work.last_head; ++head) {
        const int row = work.row_of(s, head) * sums.tiles;
        for (int tile = work.first_tile; tile < work.last_tile; ++tile, cursor.next()) {
          const SeenBlocks seen(s, work.sequence, tile);
          const int at = 2 * (row + tile) + warpgroup;
          adder.add(sums.sums + int64_t{at} * kHalf, memory.half(cursor.stage, warpgroup),
                    kHalf * 4, sums.turns + at, seen.last - work.key / kKeys,
                    &barriers.sum_full[warpgroup][cursor.stage], cursor.parity,
                    &barriers.sum_free[warpgroup][cursor.stage]);
        }
      }
      adder.finish();
    }
  }
};

}  // namespace ferry::kernels::cuda
