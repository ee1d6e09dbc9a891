// c[g] = or += transposed a[rows of g] · b[rows of g] for Hopper: the depth is a group's rows. They
// run across the factors' rows in 16 bits, and along those of factors of 8 bits, which are
// transposed already and whose groups end with zeros.
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/mixture/grouped/grouped.h"
#include "kernels/cuda/mixture/grouped/hopper_stages.cuh"

namespace ferry::kernels::cuda::grouped {

namespace {

constexpr int kColumns = 32;                  // of c, written at once
constexpr int kBoxBytes = 64 * kColumns * 4;  // a warpgroup's rows in fp32
static_assert(2 * kBoxBytes == kResultBytes && kColumns * 4 == kPanelRow);

struct Gradient {
  const int64_t* offsets;
  int groups, height, width;  // m and n
  int* counter;               // of tiles
  void* c[kMostGroups];
  int first_group = 0;
  // The scales of 8-bit factors; null otherwise.
  const Float8Scale *a_scale = nullptr, *b_scale = nullptr;
};

struct Tile {
  int group, first_left, first_right;  // row and column of c
  int first_row, rows;
};

/// EMPTY: groups without rows also have tiles.
template <bool EMPTY>
class GradientWalk {
 public:
  __device__ GradientWalk(const Memory& memory, const Gradient& x)
      : walk_(memory, x.groups),
        offsets_(memory.barriers.offsets),
        down_((x.height + kLeftOfCluster - 1) / kLeftOfCluster),
        across_((x.width + kRight - 1) / kRight) {}

  /// The tile with this number. Returns false past count().
  __device__ bool find(int number, Tile& tile) {
    int of_group = 0;
    if (!walk_.find(number, tile.group, of_group,
                    [&](int rows) { return EMPTY || rows > 0 ? down_ * across_ : 0; })) {
      return false;
    }
    tile.first_left = of_group / across_ * kLeftOfCluster + rank_in_cluster() * kLeft;
    tile.first_right = of_group % across_ * kRight;
    tile.first_row = offsets_[tile.group];
    tile.rows = offsets_[tile.group + 1] - tile.first_row;
    return true;
  }
  __device__ int count() const { return walk_.base(); }

 private:
  Walk walk_;
  const int* offsets_;
  int down_, across_;
};

/// C: type of c. ADDS: c += the product, otherwise c = the product.
template <typename T, typename C, bool ADDS>
struct Kernel {
  using TileWalk = GradientWalk<!ADDS>;
  static constexpr bool kAcross = !ptx::kIs8Bit<T>;
  static constexpr int kRowsOfStage = kAcross ? kDepth : 2 * kDepth;
  static_assert(kAcross || kRowsOfStage == kFloat8Columns);

  static __device__ void copy(const Gradient& x, const CUtensorMap* a, const CUtensorMap* b,
                              const Memory& memory) {
    // The right factor's half that this block loads for both.
    constexpr int kHalf = kRight / kCluster;
    const int half = rank_in_cluster() * kHalf;
    StageCursor<kStages> cursor;
    copy_tiles<TileWalk, Tile>(memory, TileWalk(memory, x), x.counter, [&](const Tile& tile) {
      if (threadIdx.x != 0) return;
      const int end = tile.first_row + tile.rows;
      for (int row = tile.first_row; row < end; row += kRowsOfStage, cursor.next()) {
        uint64_t* const full = &memory.barriers.full[cursor.stage];
        unsigned char *const left = memory.left(cursor.stage), *right = memory.right(cursor.stage);
        ptx::wait(&memory.barriers.free[cursor.stage], cursor.parity ^ 1);
        ptx::arrive_and_expect(full, kStageBytes);
        if constexpr (kAcross) {
          copy_box(left, a, full, tile.first_left, row);
          copy_box(left + kPanelBytes, a, full, tile.first_left + 64, row);
#pragma unroll
          for (int column = half; column < half + kHalf; column += 64) {
            copy_box_to_all(right + column / 64 * kPanelBytes, b, full, tile.first_right + column,
                            row);
          }
        } else {
          const int64_t column = grouped_column(x.first_group + tile.group, tile.first_row);
          const int depth = (static_cast<int>(column) + row - tile.first_row) / 2;
          copy_box(left, a, full, depth, tile.first_left);
          copy_box_to_all(right + half * kPanelRow, b, full, depth, tile.first_right + half);
        }
      }
    });
  }

  /// Zeroes rows of the next group. Both warpgroups do so for the right operand, so that neither
  /// waits for the other.
  static __device__ void clear_rows(const Memory& memory, int warpgroup, int stage, int rows) {
    if (!kAcross || rows == kDepth) return;
    const int thread = static_cast<int>(threadIdx.x) % 128;
    unsigned char* const own = memory.left(stage) + warpgroup * kPanelBytes;
    for (int at = rows * kPanelRow + 16 * thread; at < kPanelBytes; at += 16 * 128) {
      const uint4 zeros{0, 0, 0, 0};
      *reinterpret_cast<uint4*>(own + at) = zeros;
#pragma unroll
      for (int panel = 0; panel < kRight / 64; ++panel) {
        *reinterpret_cast<uint4*>(memory.right(stage) + panel * kPanelBytes + at) = zeros;
      }
    }
    ptx::fence_shared();
    ptx::sync_some(1 + warpgroup, 128);
  }

  static __device__ void multiply_and_write(const Gradient& x, const Memory& memory) {
    const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;
    TileWalk walk(memory, x);
    Numbers numbers(memory);
    StageCursor<kStages> cursor;
    Tile tile;
    float sums[128];
    while (walk.find(numbers.take(), tile)) {
      const int steps = (tile.rows + kRowsOfStage - 1) / kRowsOfStage;
      const int rest = tile.rows - (steps - 1) * kRowsOfStage;
      if (!ADDS && steps == 0) {
#pragma unroll
        for (float& sum : sums) sum = 0;
      } else {
        accumulate(sums, memory, warpgroup, cursor, steps,
                   [&](uint64_t left, uint64_t right, int stage, int step) {
                     if (step == steps - 1) clear_rows(memory, warpgroup, stage, rest);
                     ptx::begin_products();
#pragma unroll
                     for (int k = 0; k < kDepth / 16; ++k) {
                       multiply<T, kRight, kAcross, kAcross>(sums, left, right, k,
                                                             step > 0 || k > 0);
                     }
                   });
        if constexpr (!kAcross) {
          const float scale = x.a_scale->inverse * x.b_scale->inverse;
#pragma unroll
          for (float& sum : sums) sum *= scale;
        }
      }
      write(x, memory, warpgroup, tile, sums);
    }
  }

  /// Sums go through shared memory, 32 columns at a time, so that threads access 16 bytes and warps
  /// whole lines; blocks of 16 bytes are permuted by the row's number. Values to add to are
  /// prefetched two iterations ahead.
  static __device__ void write(const Gradient& x, const Memory& memory, int warpgroup,
                               const Tile& tile, const float (&sums)[128]) {
    constexpr int kParts = kRight / kColumns, kAhead = 2;
    constexpr int kWide = 16 / sizeof(C);                 // elements per thread
    constexpr int kEach = 64 * kColumns / (128 * kWide);  // iterations
    constexpr int kThreadsOfRow = kColumns / kWide;
    const int first_row = tile.first_left + 64 * warpgroup;
    if (first_row >= x.height) return;
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const int row = thread / kThreadsOfRow, column = thread % kThreadsOfRow * kWide;
    constexpr int kRows = 128 / kThreadsOfRow;  // rows between iterations
    C* const c = static_cast<C*>(x.c[tile.group]) + int64_t{first_row + row} * x.width +
                 tile.first_right + column;
    const auto is_there = [&](int part, int i) {
      return first_row + row + i * kRows < x.height &&
             tile.first_right + part * kColumns + column < x.width;
    };
    const auto at = [&](int part, int i) {
      return c + int64_t{i * kRows} * x.width + part * kColumns;
    };
    uint4 before[kAhead][kEach];
    const auto read = [&](int part) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (is_there(part, i)) {
          before[part % kAhead][i] = __ldcs(reinterpret_cast<const uint4*>(at(part, i)));
        }
      }
    };
    if constexpr (ADDS) {
#pragma unroll
      for (int part = 0; part < kAhead; ++part) read(part);
    }
    ptx::sync_some(1 + warpgroup, 128);  // the previous tile's contents have been read
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (tile.first_right + part * kColumns >= x.width) break;
      unsigned char* const box = memory.results + warpgroup * kResultBytes + part % 2 * kBoxBytes;
      put(box, part, sums);
      ptx::sync_some(1 + warpgroup, 128);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (!is_there(part, i)) continue;
        union Sixteen {
          uint4 bits;
          C each[kWide];
          __device__ Sixteen() {}
        } value;
        if constexpr (ADDS) value.bits = before[part % kAhead][i];
        const int own_row = row + i * kRows;
#pragma unroll
        for (int j = 0; j < kWide; j += 4) {
          const float4 four = *reinterpret_cast<const float4*>(
              box + own_row * kPanelRow + ((column + j) / 4 ^ own_row % 8) * 16);
          const float numbers[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            C& element = value.each[j + k];
            element = from_float<C>(ADDS ? to_float(element) + numbers[k] : numbers[k]);
          }
        }
        __stcs(reinterpret_cast<uint4*>(at(part, i)), value.bits);
      }
      if constexpr (ADDS) {
        if (part + kAhead < kParts) read(part + kAhead);
      }
    }
  }

  /// A warpgroup's sums of 32 columns, part number `part`. Odd rows are two blocks of 8 columns
  /// ahead to avoid bank conflicts.
  static __device__ void put(unsigned char* box, int part, const float (&sums)[128]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
    const bool is_odd = row % 2 == 1;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 2 * (lane % 4) + 8 * (i ^ (is_odd ? 2 : 0));
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int even = 16 * part + 4 * i + 2 * r, odd = 16 * part + 4 * (i ^ 2) + 2 * r;
        const float2 two{is_odd ? sums[odd] : sums[even], is_odd ? sums[odd + 1] : sums[even + 1]};
        *reinterpret_cast<float2*>(box + (row + 8 * r) * kPanelRow + (column / 4 ^ row % 8) * 16 +
                                   column % 4 * 4) = two;
      }
    }
  }
};

template <typename T, typename C, bool ADDS>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    gradient_kernel(const __grid_constant__ Gradient x, const __grid_constant__ CUtensorMap a,
                    const __grid_constant__ CUtensorMap b) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const Memory memory(shared);
  prepare(memory, x.offsets, x.groups);
  if (threadIdx.x < 128) {
    ptx::fewer_registers<40>();
    if (threadIdx.x < 32) Kernel<T, C, ADDS>::copy(x, &a, &b, memory);
    __syncwarp();
  } else {
    ptx::more_registers<232>();
    Kernel<T, C, ADDS>::multiply_and_write(x, memory);
  }
  sync_cluster();  // the other block may still write to this one's memory
}

/// `x` has everything but its groups' part of a launch.
template <typename T>
void launch(Device& device, Launches& launches, Gradient x, std::span<const Array> c, bool adds,
            const CUtensorMap& a, const CUtensorMap& b) {
  using C = std::conditional_t<ptx::kIs8Bit<T>, bf16, T>;
  const bool is_wide = c.front().type == Type::f32;
  const auto kernel =
      is_wide ? (adds ? gradient_kernel<T, float, true> : gradient_kernel<T, float, false>)
              : (adds ? gradient_kernel<T, C, true> : gradient_kernel<T, C, false>);
  const int blocks =
      launches.blocks(reinterpret_cast<const void*>(kernel), kThreads, kCluster, kSharedBytes);
  const auto groups = static_cast<int>(c.size());
  const int64_t* const offsets = x.offsets;
  for (int first = 0; first < groups; first += kMostGroups) {
    x.offsets = offsets + first;
    x.first_group = first;
    x.groups = std::min(kMostGroups, groups - first);
    x.counter = launches.counter();
    for (int i = 0; i < x.groups; ++i) x.c[i] = c[static_cast<size_t>(first + i)].data;
    kernel<<<blocks, kThreads, kSharedBytes, device.stream()>>>(x, a, b);
    check_launch("grouped gradient");
  }
}

CUtensorMap map_of(const ConstArray& x, int64_t rows, int64_t width, int box_rows) {
  return tensor_map(x, width, std::array<Dimension, 1>{{{rows, width}}}, box_rows);
}

}  // namespace

void hopper_gradient(Device& device, Launches& launches, const GroupedMatmulGradient& x) {
  const auto launch_type = x.a.type == Type::bf16 ? launch<bf16> : launch<half>;
  launch_type(device, launches,
              {.offsets = x.offsets,
               .groups = 0,
               .height = static_cast<int>(x.m),
               .width = static_cast<int>(x.n),
               .counter = nullptr,
               .c = {}},
              x.c, x.accumulate, map_of(x.a, x.rows, x.m, kDepth),
              map_of(x.b, x.rows, x.n, kDepth));
}

void hopper_gradient(Device& device, Launches& launches, const GroupedFloat8Gradient& x) {
  const int64_t depth = grouped_columns(static_cast<int64_t>(x.c.size()), x.rows) / 2;
  const auto launch_type =
      x.a.format == Float8::e4m3 ? launch<ptx::E4m3ByE4m3> : launch<ptx::E5m2ByE4m3>;
  launch_type(device, launches,
              {.offsets = x.offsets,
               .groups = 0,
               .height = static_cast<int>(x.m),
               .width = static_cast<int>(x.n),
               .counter = nullptr,
               .c = {},
               .a_scale = x.a.scale,
               .b_scale = x.b.scale},
              x.c, x.accumulate, map_of({x.a.data, Type::bf16}, x.m, depth, kLeft),
              map_of({x.b.data, Type::bf16}, x.n, depth, kRight / kCluster));
}

}  // namespace ferry::kernels::cuda::grouped
