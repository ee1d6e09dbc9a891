// c[rows of g] = a[rows of g] · b[g] for Hopper.
//
// Tensor cores support any number of columns but at least 64 rows, so the transpose of c is
// computed, with only as many columns as a group has rows.
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/mixture/grouped/grouped.h"
#include "kernels/cuda/mixture/grouped/hopper_stages.cuh"

namespace ferry::kernels::cuda::grouped {

namespace {

constexpr int kStep = 16;  // granularity of rows

/// Boxes of 8, 16, ... rows: halves of tiles.
struct RowMaps {
  CUtensorMap of[kRight / kStep];
};

struct Rows {
  const int64_t* offsets;
  int groups, width, depth;  // n and k, of 8-bit numbers k / 2
  void* c;
  const CUtensorMap* weights;
  int* counter = nullptr;  // of tiles
  // The scales of 8-bit numbers; null otherwise.
  const Float8Scale *row_scale = nullptr, *weight_scales = nullptr;
  bool shares_scale = false;
};

struct Tile {
  int group, first_left;  // column of c
  int first_row, rows, padded;
};

/// A group's rows in tiles of 256; the last two are about equal. Tiles of the same weights are
/// consecutive.
class RowWalk {
 public:
  __device__ RowWalk(const Memory& memory, const Rows& x)
      : walk_(memory, x.groups),
        offsets_(memory.barriers.offsets),
        across_(ceil(x.width, kLeftOfCluster)) {}

  /// The tile with this number. Returns false past count().
  __device__ bool find(int number, Tile& tile) {
    int of_group = 0;
    if (!walk_.find(number, tile.group, of_group,
                    [&](int rows) { return ceil(rows, kRight) * across_; })) {
      return false;
    }
    const int begin = offsets_[tile.group], count = offsets_[tile.group + 1] - begin;
    const int tiles = ceil(count, kRight), row_tile = of_group % tiles;
    tile.first_left = of_group / tiles * kLeftOfCluster + rank_in_cluster() * kLeft;
    const int whole = max(tiles - 2, 0) * kRight;  // rows in whole tiles
    const int share = tiles == 1 ? count : ceil(ceil(count - whole, 2), kStep) * kStep;
    const int first = row_tile * kRight <= whole ? row_tile * kRight : whole + share;
    tile.first_row = begin + first;
    tile.rows = min(first < whole ? kRight : share, count - first);
    tile.padded = __shfl_sync(0xffffffffU, ceil(tile.rows, kStep), 0) * kStep;
    return true;
  }
  __device__ int count() const { return walk_.base(); }

 private:
  static __device__ int ceil(int a, int b) { return (a + b - 1) / b; }

  Walk walk_;
  const int* offsets_;
  int across_;
};

/// ACROSS: weights are not transposed: each row in memory has one depth.
template <typename T, bool ACROSS>
struct Kernel {
  using C = std::conditional_t<ptx::kIs8Bit<T>, bf16, T>;

  static __device__ void copy(const Rows& x, const RowMaps& maps, const Memory& memory) {
    StageCursor<kStages> cursor;
    copy_tiles<RowWalk, Tile>(memory, RowWalk(memory, x), x.counter, [&](const Tile& tile) {
      if (threadIdx.x != 0) return;
      const CUtensorMap* const weights = x.weights + tile.group;
      const CUtensorMap* const rows = maps.of + tile.padded / kStep - 1;
      const int half = tile.padded / 2, first = rank_in_cluster() * half;
      for (int depth = 0; depth < x.depth; depth += kDepth, cursor.next()) {
        uint64_t* const full = &memory.barriers.full[cursor.stage];
        unsigned char* const left = memory.left(cursor.stage);
        ptx::wait(&memory.barriers.free[cursor.stage], cursor.parity ^ 1);
        ptx::arrive_and_expect(full, kLeftBytes + tile.padded * kPanelRow);
        if constexpr (ACROSS) {
          copy_box(left, weights, full, tile.first_left, depth);
          copy_box(left + kPanelBytes, weights, full, tile.first_left + 64, depth);
        } else {
          copy_box(left, weights, full, depth, tile.first_left);
        }
        copy_box_to_all(memory.right(cursor.stage) + first * kPanelRow, rows, full, depth,
                        tile.first_row + first);
      }
    });
  }

  /// Processes up to N rows of the group; tile.rows of them exist.
  template <int N>
  static __device__ void compute(const Rows& x, const Memory& memory, const Tile& tile,
                                 int warpgroup, StageCursor<kStages>& cursor) {
    float sums[N / 2];
    accumulate(sums, memory, warpgroup, cursor, (x.depth + kDepth - 1) / kDepth,
               [&](uint64_t left, uint64_t right, int, int step) {
                 ptx::begin_products();
#pragma unroll
                 for (int k = 0; k < kDepth / 16; ++k) {
                   multiply<T, N, ACROSS, false>(sums, left, right, k, step > 0 || k > 0);
                 }
               });
    if constexpr (ptx::kIs8Bit<T>) {
      const float scale =
          x.row_scale->inverse * x.weight_scales[x.shares_scale ? 0 : tile.group].inverse;
#pragma unroll
      for (float& sum : sums) sum *= scale;
    }
    write<N>(x, memory, warpgroup, tile, sums);
  }

  static __device__ void multiply_and_write(const Rows& x, const Memory& memory) {
    const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;
    RowWalk walk(memory, x);
    Numbers numbers(memory);
    StageCursor<kStages> cursor;
    Tile tile;
    while (walk.find(numbers.take(), tile)) {
      switch (tile.padded / kStep) {
#define FERRY_CASE(i)                                       \
  case i:                                                   \
    compute<i * kStep>(x, memory, tile, warpgroup, cursor); \
    break
        FERRY_CASE(1);
        FERRY_CASE(2);
        FERRY_CASE(3);
        FERRY_CASE(4);
        FERRY_CASE(5);
        FERRY_CASE(6);
        FERRY_CASE(7);
        FERRY_CASE(8);
        FERRY_CASE(9);
        FERRY_CASE(10);
        FERRY_CASE(11);
        FERRY_CASE(12);
        FERRY_CASE(13);
        FERRY_CASE(14);
        FERRY_CASE(15);
#undef FERRY_CASE
        default:
          compute<kRight>(x, memory, tile, warpgroup, cursor);
      }
    }
  }

  /// Transposes the sums in shared memory, 128 rows of 64 columns at a time, with blocks of 16
  /// bytes permuted by the row's number.
  template <int N>
  static __device__ void write(const Rows& x, const Memory& memory, int warpgroup, const Tile& tile,
                               const float (&sums)[N / 2]) {
    const int first_column = tile.first_left + 64 * warpgroup;
    if (first_column >= x.width) return;
    unsigned char* const results = memory.results + warpgroup * kResultBytes;
    const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    const int own_row = lane % 8 + lane / 16 * 8, own_block = thread / 32 * 2 + lane / 8 % 2;
    const int column = first_column + thread % 8 * 8;
    C* const c = static_cast<C*>(x.c) + int64_t{tile.first_row} * x.width + column;
#pragma unroll
    for (int part = 0; part < (N + 127) / 128; ++part) {
      ptx::sync_some(1 + warpgroup, 128);  // the previous contents have been read
#pragma unroll
      for (int j = 0; j < 8 && 8 * part + j < N / 16; ++j) {
        const int at = 64 * part + 8 * j, row = 16 * j + own_row;
        ptx::store_turned(results + row * kPanelRow + (own_block ^ row % 8) * 16,
                          pair(sums[at], sums[at + 1], C()), pair(sums[at + 2], sums[at + 3], C()),
                          pair(sums[at + 4], sums[at + 5], C()),
                          pair(sums[at + 6], sums[at + 7], C()));
      }
      ptx::sync_some(1 + warpgroup, 128);
#pragma unroll
      for (int i = 0; i < 8 && 8 * part + i < N / 16; ++i) {
        const int row = 16 * i + thread / 8;
        if (128 * part + row >= tile.rows || column >= x.width) continue;
        const unsigned char* const from = results + row * kPanelRow + (thread % 8 ^ row % 8) * 16;
        // Keeps written data from evicting operands in the cache.
        __stcs(reinterpret_cast<uint4*>(c + int64_t{128 * part + row} * x.width),
               *reinterpret_cast<const uint4*>(from));
      }
    }
  }
};

template <typename T, bool ACROSS>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    rows_kernel(const __grid_constant__ Rows x, const __grid_constant__ RowMaps maps) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const Memory memory(shared);
  prepare(memory, x.offsets, x.groups);
  if (threadIdx.x < 128) {
    ptx::fewer_registers<40>();
    if (threadIdx.x < 32) Kernel<T, ACROSS>::copy(x, maps, memory);
    __syncwarp();
  } else {
    ptx::more_registers<232>();
    Kernel<T, ACROSS>::multiply_and_write(x, memory);
  }
  sync_cluster();  // the other block may still write to this one's memory
}

/// `a` has x.depth columns of 16 bits.
void launch(Device& device, Launches& launches, void (*kernel)(Rows, RowMaps), const ConstArray& a,
            int64_t rows, const Rows& x) {
  RowMaps maps;
  for (int i = 0; i < kRight / kStep; ++i) {
    maps.of[i] = tensor_map(a, x.depth, std::array<Dimension, 1>{{{rows, x.depth}}}, 8 * (i + 1));
  }
  const int blocks =
      launches.blocks(reinterpret_cast<const void*>(kernel), kThreads, kCluster, kSharedBytes);
  for (int first = 0; first < x.groups; first += kMostGroups) {
    Rows part = x;
    part.offsets += first;
    part.groups = std::min(kMostGroups, x.groups - first);
    part.weights += first;
    if (!x.shares_scale && x.weight_scales != nullptr) part.weight_scales += first;
    part.counter = launches.counter();
    kernel<<<blocks, kThreads, kSharedBytes, device.stream()>>>(part, maps);
    check_launch("grouped product");
  }
}

}  // namespace

void hopper_rows(Device& device, Launches& launches, const GroupedMatmul& x,
                 const CUtensorMap* weights) {
  const bool is_bf16 = x.a.type == Type::bf16;
  const auto kernel = x.b_transposed
                          ? (is_bf16 ? rows_kernel<bf16, false> : rows_kernel<half, false>)
                          : (is_bf16 ? rows_kernel<bf16, true> : rows_kernel<half, true>);
  launch(device, launches, kernel, x.a, x.rows,
         {.offsets = x.offsets,
          .groups = static_cast<int>(x.b.size()),
          .width = static_cast<int>(x.n),
          .depth = static_cast<int>(x.k),
          .c = x.c.data,
          .weights = weights});
}

void hopper_rows(Device& device, Launches& launches, const GroupedFloat8Matmul& x,
                 const CUtensorMap* weights) {
  const auto kernel = x.a.format == Float8::e4m3 ? rows_kernel<ptx::E4m3ByE4m3, false>
                                                 : rows_kernel<ptx::E4m3ByE5m2, false>;
  launch(device, launches, kernel, {x.a.data, Type::bf16}, x.rows,
         {.offsets = x.offsets,
          .groups = static_cast<int>(x.groups),
          .width = static_cast<int>(x.n),
          .depth = static_cast<int>(x.k / 2),
          .c = x.c.data,
          .weights = weights,
          .row_scale = x.a.scale,
          .weight_scales = x.scales,
          .shares_scale = x.shares_scale});
}

}  // namespace ferry::kernels::cuda::grouped
