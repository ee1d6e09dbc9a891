// Shared by the passes for Hopper. A block has a producer warpgroup that loads tiles with TMA and
// consumer warpgroups that multiply. They communicate through stages of shared memory: one barrier
// signals that a stage is full, another that it is free again. Tiles consist of panels of 64
// columns (128 bytes), each with all rows of the tile.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/cuda/attention/mask.cuh"
#include "kernels/cuda/hopper/products.cuh"
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/launch.cuh"

namespace ferry::kernels::cuda {

// Dropout of probabilities on Hopper. One counter of the generator has the numbers of four
// neighbouring keys (random.h), which belong to several threads: each computes the numbers of one
// counter and sends the others one bit for each.

/// Rows and parts of sequences must start at counter boundaries.
inline bool drops_by_counter(const AttentionShape& s) {
  return s.total_positions % 4 == 0 && s.key_begin % 4 == 0;
}

/// Bit i: whether the counter's i-th number is kept.
__device__ inline uint32_t kept_bits(const Kept& kept, int query, int key) {
  const int64_t element =
      (kept.rows + kept.first_query + query) * kept.width + kept.first_key + key;
  const auto words = philox(kept.key, static_cast<uint64_t>(element) / 4, 0);
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float number = static_cast<float>(words[i] >> 8) * 0x1p-24F;
    bits |= static_cast<uint32_t>(number >= kept.probability) << i;
  }
  return bits;
}

/// Marks dropped elements of a warp's tile by a minus sign. Rows are queries: the thread's first
/// one is `query`, the second is `query` + 8; columns are keys from `key` on.
template <int N>
__device__ inline void mark_dropped(const Kept& kept, int query, int key, float (&p)[N]) {
  const int lane = static_cast<int>(threadIdx.x % 32), c = lane % 4;
  // For every 8 keys, the four threads of a row and the one below it each compute half a row.
  const int own_row = query + c / 2 * 8, own_key = key + c % 2 * 4;
#pragma unroll
  for (int first = 0; first < N / 4; first += 8) {  // 8 blocks of 8 keys in a word
    const int blocks = N / 4 - first < 8 ? N / 4 - first : 8;
    uint32_t own = 0;
#pragma unroll 2
    for (int j = 0; j < blocks; ++j) {
      own |= kept_bits(kept, own_row, own_key + 8 * (first + j)) << 4 * j;
    }
    const uint32_t rows[2] = {__shfl_sync(0xffffffffU, own, lane / 4 * 4 + c / 2),
                              __shfl_sync(0xffffffffU, own, lane / 4 * 4 + 2 + c / 2)};
#pragma unroll
    for (int i = 0; i < 4 * blocks; ++i) {
      const bool is_kept = rows[i % 4 / 2] >> (i / 4 * 4 + c % 2 * 2 + i % 2) & 1;
      float& each = p[4 * first + i];
      each = is_kept ? each : -each;
    }
  }
}

/// The same for a transposed tile: rows are keys, the warp's from `key` on; the thread's first
/// column is `query`.
template <int N>
__device__ inline void mark_dropped_turned(const Kept& kept, int query, int key, float (&p)[N]) {
  static_assert(N / 4 <= 8);
  const int lane = static_cast<int>(threadIdx.x % 32), row = lane / 4, c = lane % 4;
  // For every 8 queries, the 8 threads of two columns each compute four keys of one column.
  uint32_t own = 0;
#pragma unroll 2
  for (int j = 0; j < N / 4; ++j) {
    own |= kept_bits(kept, query + 8 * j + row % 2, key + row / 2 * 4) << 4 * j;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {  // in a block: two columns of the first row, two of the second
    const int holder = (row / 4 + e / 2 * 2) * 2 + e % 2;
    const uint32_t bits = __shfl_sync(0xffffffffU, own, holder * 4 + c) >> row % 4;
#pragma unroll
    for (int j = 0; j < N / 4; ++j) {
      float& each = p[4 * j + e];
      each = bits >> 4 * j & 1 ? each : -each;
    }
  }
}

/// The gradient of a score whose probability is marked this way.
__device__ inline float marked_gradient(const Kept& kept, float p, float gradient, float delta) {
  return p > 0 ? p * fmaf(kept.scale, gradient, -delta) : p * delta;
}

constexpr int panels(int columns) { return (columns + 63) / 64; }
constexpr int tile_bytes(int rows, int columns) { return rows * panels(columns) * kPanelRow; }

/// Converts sums of a product to the left factor of the next one: their layout over threads is the
/// same.
template <typename T, int N>
__device__ inline void pack(const float (&from)[N], uint32_t (&to)[N / 2]) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) to[i] = pair(from[2 * i], from[2 * i + 1], T());
}

/// sums = a · bᵀ over DEPTH columns; the panels of a and b are this many bytes apart.
template <typename T, int DEPTH, int N>
__device__ inline void multiply_rows(float (&sums)[N], uint64_t a, int a_panel, uint64_t b,
                                     int b_panel) {
#pragma unroll
  for (int k = 0; k < DEPTH / 16; ++k) {
    ptx::multiply<T>(sums, ptx::further(a, k / 4 * a_panel + k % 4 * 32),
                     ptx::further(b, k / 4 * b_panel + k % 4 * 32), k > 0);
  }
}
/// sums += p · b, where p's columns are b's rows.
template <typename T, int N, int P>
__device__ inline void multiply_columns(float (&sums)[N], const uint32_t (&p)[P], uint64_t b) {
#pragma unroll
  for (int k = 0; k < P / 4; ++k) {
    ptx::multiply<T>(sums, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3],
                     ptx::further(b, k * 16 * kPanelRow));
  }
}

/// The order in which tiles are assigned to blocks: by sections of heads whose keys and values fit
/// the L2 cache, longest first, in boustrophedon order, so that a block with a longer tile next
/// gets a shorter one.
struct Schedule {
  int tiles, heads, section;  // tiles per head
  int before = 0;             // rows of a head's first tile before its first query

  __host__ __device__ int count() const { return tiles * heads; }

  /// The rank-th longest tile of a head.
  struct Tile {
    int rank, head;
  };
  /// The round-th tile of this block. Returns false if there are no more.
  __device__ bool at(int round, Tile& tile) const {
    const auto blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    const int index = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
    if (index >= count()) return false;
    const int first = index / (tiles * section) * section;
    const int here = min(section, heads - first), within = index - first * tiles;
    tile.rank = within / here;
    tile.head = first + within - tile.rank * here;
    return true;
  }
};

/// Sections have several tiles per block, which evens out different lengths.
inline Schedule schedule(const Device& device, int64_t positions, int rows, int64_t heads,
                         int64_t bytes_of_head) {
  constexpr int64_t kCache = int64_t{24} << 20, kRounds = 4;
  const int64_t tiles = ceil_div(positions, rows);
  const int64_t most = std::max(kCache / std::max<int64_t>(bytes_of_head, 1),
                                ceil_div(kRounds * device.multiprocessors(), tiles));
  const int64_t sections = std::max<int64_t>(heads / most, 1);
  return {static_cast<int>(tiles), static_cast<int>(heads),
          static_cast<int>(ceil_div(heads, sections))};
}

/// The keys visible to any of a range of queries, [begin, end), and those visible to all. Documents
/// are in order, so the first and the last query determine them.
struct TileBounds {
  int begin, end, all_begin, all_end;

  __device__ TileBounds(const AttentionShape& s, int64_t sequence, int query, int rows) {
    const int first = min(max(query, 0), static_cast<int>(s.queries) - 1);
    const int last = max(min(query + rows, static_cast<int>(s.queries)) - 1, 0);
    begin = first_key(s, sequence, first);
    all_begin = first_key(s, sequence, last);
    end = last_key(s, last);
    all_end = last_key(s, first);
  }
  __device__ bool all_see(int key, int keys) const {
    return key >= all_begin && key + keys <= all_end;
  }
};

/// A tile of queries of one head, and its range of tiles of keys.
template <int QUERIES, int KEYS>
struct QueryWork {
  int sequence, head, group, of_group;
  int query;                  // of the first row; negative before the first query
  int first_tile, last_tile;  // [first, last)

  __device__ QueryWork(const AttentionShape& s, const Schedule& schedule,
                       const Schedule::Tile& at) {
    const auto heads = static_cast<uint32_t>(s.heads);
    const uint32_t per_group = heads / static_cast<uint32_t>(s.groups);
    sequence = static_cast<int>(static_cast<uint32_t>(at.head) / heads);
    head = at.head - sequence * static_cast<int>(heads);
    group = static_cast<int>(static_cast<uint32_t>(head) / per_group);
    of_group = head - group * static_cast<int>(per_group);
    query = (schedule.tiles - 1 - at.rank) * QUERIES - schedule.before;
    const TileBounds bounds(s, sequence, query, QUERIES);
    first_tile = bounds.begin / KEYS;
    last_tile = bounds.end > bounds.begin ? (bounds.end + KEYS - 1) / KEYS : first_tile;
  }
  /// The end of the tiles for a warpgroup's own 64 queries with these bounds; at least one tile if
  /// the block has any.
  __device__ int own_last(const AttentionShape& s, int own_query, const TileBounds& bounds) const {
    const bool is_there = own_query > -64 && own_query < s.queries;
    const int end = is_there ? (bounds.end + KEYS - 1) / KEYS : 0;
    return max(min(end, last_tile), first_tile + 1);
  }
};

/// Writes the thread's part of two rows of a warp's tile. Threads that share a row exchange their
/// parts of 32 columns, so that each writes 8 columns at once.
template <typename T, int N>
__device__ inline void store_words(const float (&sums)[N], T* const (&rows)[2], int columns,
                                   const float (&factor)[2]) {
  const int c = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int j = 0; j < N / 4; j += 4) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t w[4];  // from blocks j to j + 3, columns 2 c and 2 c + 1
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (j + i) + 2 * r;
        w[i] = pair(factor[r] * sums[at], factor[r] * sums[at + 1], T());
      }
      // Transposes a square of four threads and four blocks: first within pairs, then pairs.
      uint32_t x = __shfl_xor_sync(0xffffffffU, c % 2 ? w[0] : w[1], 1);
      uint32_t y = __shfl_xor_sync(0xffffffffU, c % 2 ? w[2] : w[3], 1);
      (c % 2 ? w[0] : w[1]) = x;
      (c % 2 ? w[2] : w[3]) = y;
      x = __shfl_xor_sync(0xffffffffU, c / 2 ? w[0] : w[2], 2);
      y = __shfl_xor_sync(0xffffffffU, c / 2 ? w[1] : w[3], 2);
      (c / 2 ? w[0] : w[2]) = x;
      (c / 2 ? w[1] : w[3]) = y;
      const int column = 8 * (j + c);
      if (rows[r] && column < columns) {
        *reinterpret_cast<uint4*>(rows[r] + column) = {w[0], w[1], w[2], w[3]};
      }
    }
  }
}

template <typename T, int N>
__device__ inline void store_rows_of(const float (&sums)[N], T* const (&rows)[2], int columns,
                                     const float (&factor)[2], bool accumulate) {
  if constexpr (sizeof(T) == 2) {
    if (!accumulate) return store_words(sums, rows, columns, factor);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int r = i % 4 / 2, column = i / 4 * 8 + 2 * static_cast<int>(threadIdx.x % 4) + i % 2;
    if (!rows[r] || column >= columns) continue;
    const float value = factor[r] * sums[i];
    rows[r][column] = from_float<T>(accumulate ? to_float(rows[r][column]) + value : value);
  }
}

/// Writes a warpgroup's 64 rows of sums, limited to `rows` rows from `row` on and `columns`
/// columns.
template <int N>
__device__ inline void store_rows(const float (&sums)[N], const Array& to, int64_t start,
                                  int64_t stride, int row, int64_t rows, int columns,
                                  const float (&factor)[2], bool accumulate) {
  const auto store = [&]<typename T>(T* elements) {
    T* const first = elements + start + row * stride;
    T* const there[2] = {row >= 0 && row < rows ? first : nullptr,
                         row + 8 >= 0 && row + 8 < rows ? first + 8 * stride : nullptr};
    store_rows_of(sums, there, columns, factor, accumulate);
  };
  if (to.type == Type::f32) {
    store(static_cast<float*>(to.data));
  } else if (to.type == Type::bf16) {
    store(static_cast<bf16*>(to.data));
  } else {
    store(static_cast<half*>(to.data));
  }
}

/// Queries (or outputs) and keys (or values) as TMA dimensions.
inline std::array<Dimension, 4> query_dimensions(const AttentionShape& s, const HeadStrides& x) {
  return {{{s.queries, x.position},
           {s.heads / s.groups, x.head},
           {s.groups, x.group},
           {s.sequences, x.sequence}}};
}
inline std::array<Dimension, 3> key_dimensions(const AttentionShape& s, const HeadStrides& x) {
  return {{{s.keys, x.position}, {s.groups, x.group}, {s.sequences, x.sequence}}};
}
/// Whether eight elements can be written at once.
inline bool takes_packs(const Array& x, const HeadStrides& strides) {
  return is_packed({x.data}, {strides.position, strides.sequence, strides.group, strides.head});
}

/// Whether the passes support this case, apart from alignment.
inline bool is_for_hopper(const Device& device, const AttentionShape& s, Type type) {
  return device.architecture() == 90 && type != Type::f32 &&
         (s.dropout == 0 || (s.dim <= 128 && drops_by_counter(s))) && s.scale > 0 && s.keys > 0 &&
         s.queries > 0 && s.value_dim <= 128 && s.dim <= 192 && s.sequences * s.heads < (1 << 24);
}

/// Loads a box's panels, by one thread.
template <int COLUMNS, typename... Coordinates>
__device__ inline void copy_tile(unsigned char* to, int rows, const CUtensorMap* map,
                                 uint64_t* barrier, Coordinates... c) {
#pragma unroll
  for (int panel = 0; panel < panels(COLUMNS); ++panel) {
    ptx::copy_box(to + panel * rows * kPanelRow, map, barrier, 64 * panel, c...);
  }
}

}  // namespace ferry::kernels::cuda
