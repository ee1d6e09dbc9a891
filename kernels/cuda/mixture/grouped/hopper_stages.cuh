// Shared by grouped products for Hopper. A cluster of two blocks computes neighbouring tiles of 128
// rows and at most 256 columns. In each block one thread loads operands with TMA and two warpgroups
// multiply, 64 rows each. They communicate through stages of shared memory of depth 64: one barrier
// signals that a stage is full, another that it is free again. Both blocks have the same right
// operand: each loads half of it with multicast, so a stage is free once both have used it.
#pragma once

#include "kernels/cuda/hopper/products.cuh"
#include "kernels/cuda/launch.cuh"

namespace ferry::kernels::cuda::grouped {

constexpr int kCluster = 2;
constexpr int kThreads = 3 * 128;
constexpr int kLeft = 128, kRight = 256, kDepth = 64;  // of a block's tile
constexpr int kLeftOfCluster = kCluster * kLeft;
constexpr int kLeftBytes = kLeft * kPanelRow, kRightBytes = kRight * kPanelRow;
constexpr int kStages = 4, kStageBytes = kLeftBytes + kRightBytes;
constexpr int kPanelBytes = kDepth * kPanelRow;  // if rows in memory have one depth
constexpr int kResultBytes = 16384;              // for a warpgroup's output
constexpr int kMostGroups = 256;                 // per launch
constexpr int kNumbers = 2;                      // tile numbers in flight
constexpr int kWarps = 8;                        // consumer warps per block

struct Barriers {
  uint64_t full[kStages], free[kStages];
  uint64_t number_full[kNumbers], number_free[kNumbers];
  int numbers[kNumbers];
  int offsets[kMostGroups + 1];  // of the groups' rows
};
constexpr int kSharedBytes =
    kStages * kStageBytes + 2 * kResultBytes + static_cast<int>(sizeof(Barriers));
static_assert(kSharedBytes <= 227 << 10);

struct Memory {
  unsigned char *stages, *results;
  Barriers& barriers;

  __device__ explicit Memory(unsigned char* at)
      : stages(at),
        results(at + kStages * kStageBytes),
        barriers(*reinterpret_cast<Barriers*>(results + 2 * kResultBytes)) {}

  __device__ unsigned char* left(int stage) const { return stages + stage * kStageBytes; }
  __device__ unsigned char* right(int stage) const { return left(stage) + kLeftBytes; }
};

// --- Clusters.

__device__ inline int rank_in_cluster() { return static_cast<int>(blockIdx.x % kCluster); }

/// All threads of both blocks.
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n" ::: "memory");
}
/// Arrives at the barrier of block `rank` at the same address as `barrier`. Uses the default scope:
/// with cluster scope each arrival would wait until the thread's writes are visible to the whole
/// device, but what is released here was only read.
__device__ inline void arrive_at(uint64_t* barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(ptx::shared(barrier)),
      "r"(rank)
      : "memory");
}
/// Writes a number to another block and signals four bytes to its barrier.
__device__ inline void send(int* to, uint64_t* barrier, int rank, int number) {
  asm volatile(
      "{\n"
      ".reg .b32 there, barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 barrier, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %3, [barrier];\n"
      "}\n" ::"r"(ptx::shared(to)),
      "r"(ptx::shared(barrier)), "r"(rank), "r"(number)
      : "memory");
}
/// Loads a box of a matrix whose first element is at (column, row).
__device__ inline void copy_box(void* to, const CUtensorMap* map, uint64_t* barrier, int column,
                                int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4}], [%2];" ::"r"(ptx::shared(to)),
      "l"(map), "r"(ptx::shared(barrier)), "r"(column), "r"(row)
      : "memory");
}
/// The same, to the same address in both blocks, and signals both barriers.
__device__ inline void copy_box_to_all(void* to, const CUtensorMap* map, uint64_t* barrier,
                                       int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(ptx::shared(to)),
      "l"(map), "r"(ptx::shared(barrier)), "r"(column), "r"(row),
      "h"(static_cast<uint16_t>((1 << kCluster) - 1))
      : "memory");
}
// --- Setup of a kernel.

/// Loads the offsets of `groups` groups and initializes barriers.
__device__ inline void prepare(const Memory& memory, const int64_t* offsets, int groups) {
  Barriers& barriers = memory.barriers;
  for (int i = static_cast<int>(threadIdx.x); i <= groups; i += kThreads) {
    barriers.offsets[i] = static_cast<int>(offsets[i]);
  }
  if (threadIdx.x == 0) {
    for (auto& barrier : barriers.full) ptx::init_barrier(&barrier, 1);
    for (auto& barrier : barriers.free) ptx::init_barrier(&barrier, kCluster * kWarps);
    for (auto& barrier : barriers.number_full) ptx::init_barrier(&barrier, 1);
    // The producer warp also takes tile numbers.
    for (auto& barrier : barriers.number_free) {
      ptx::init_barrier(&barrier, kCluster * (kWarps + 1));
    }
    ptx::fence_barriers();
  }
  sync_cluster();
}

// --- Tiles are numbered across groups, and each cluster takes the next one when it is idle:
// clusters read nearby data at the same time, which stays in the cache. One thread takes a number
// and sends it to both blocks, a tile ahead.

/// One per producer or consumer warp.
class Numbers {
 public:
  __device__ explicit Numbers(const Memory& memory) : barriers_(memory.barriers) {}

  /// Called by the producer warp: requests the next number. `counter` is zero initially.
  __device__ void ask(int* counter) {
    if (threadIdx.x == 0) {
      uint64_t* const full = &barriers_.number_full[asked_.stage];
      ptx::arrive_and_expect(full, sizeof(int));
      if (rank_in_cluster() == 0) {
        ptx::wait(&barriers_.number_free[asked_.stage], asked_.parity ^ 1);
        const int number = atomicAdd(counter, 1);
        for (int rank = 0; rank < kCluster; ++rank) {
          send(&barriers_.numbers[asked_.stage], full, rank, number);
        }
      }
    }
    asked_.next();
  }
  /// The next number, in all lanes. Each request must be taken.
  __device__ int take() {
    int number = 0;
    if (threadIdx.x % 32 == 0) {
      ptx::wait(&barriers_.number_full[taken_.stage], taken_.parity);
      number = *const_cast<volatile int*>(&barriers_.numbers[taken_.stage]);
      arrive_at(&barriers_.number_free[taken_.stage], 0);
    }
    taken_.next();
    return __shfl_sync(0xffffffffU, number, 0);
  }

 private:
  Barriers& barriers_;
  StageCursor<kNumbers> asked_, taken_;
};

/// Finds tiles by ascending numbers.
class Walk {
 public:
  __device__ Walk(const Memory& memory, int groups)
      : offsets_(memory.barriers.offsets), groups_(groups) {}

  /// Finds the group and tile with this number; groups have tiles(rows) tiles. Returns false if
  /// there is none; base() is their total.
  template <typename Tiles>
  __device__ bool find(int number, int& group, int& tile, const Tiles& tiles) {
    for (; group_ < groups_; ++group_) {
      const int here = tiles(offsets_[group_ + 1] - offsets_[group_]);
      if (number - base_ < here) break;
      base_ += here;
    }
    // Uniform over lanes, as the compiler must know for products.
    group = __shfl_sync(0xffffffffU, group_, 0);
    tile = __shfl_sync(0xffffffffU, number - base_, 0);
    return group < groups_;
  }
  __device__ int base() const { return base_; }

 private:
  const int* offsets_;
  int groups_, group_ = 0, base_ = 0;
};

/// Called by the producer warp: copy(tile) for each of its block's tiles. The last cluster to run
/// out of tiles resets the counter.
template <typename TileWalk, typename Tile, typename Copy>
__device__ inline void copy_tiles(const Memory& memory, TileWalk walk, int* counter,
                                  const Copy& copy) {
  Numbers numbers(memory);
  Tile tile;
  numbers.ask(counter);
  int number = numbers.take();
  for (; walk.find(number, tile); number = numbers.take()) {
    numbers.ask(counter);
    copy(tile);
  }
  const int clusters = static_cast<int>(gridDim.x) / kCluster;
  if (blockIdx.x % kCluster == 0 && threadIdx.x == 0 && number == walk.count() + clusters - 1) {
    *counter = 0;
  }
}

// --- Products.

/// Bytes to the next 16 depths.
template <bool ACROSS>
constexpr int kDepthStep = ACROSS ? 16 * kPanelRow : 32;

/// sums = or += product number k, of depth 16, of the stage at which the descriptions start.
template <typename T, int N, bool LEFT, bool RIGHT>
__device__ inline void multiply(float (&sums)[N / 2], uint64_t left, uint64_t right, int k,
                                bool adds) {
  ptx::multiply<T, LEFT, RIGHT>(sums, ptx::further(left, k * kDepthStep<LEFT>),
                                ptx::further(right, k * kDepthStep<RIGHT>), adds);
}

/// Signals that a warp has finished with a stage.
__device__ inline void release(const Memory& memory, int stage) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < kCluster) arrive_at(&memory.barriers.free[stage], lane);
}

/// sums = the total of multiply(left, right, stage, step) over `steps` stages, with descriptions of
/// the warpgroup's operands; unchanged if there are none.
template <int SUMS, typename Multiply>
__device__ inline void accumulate(float (&sums)[SUMS], const Memory& memory, int warpgroup,
                                  StageCursor<kStages>& cursor, int steps,
                                  const Multiply& multiply) {
  const uint64_t first_left = ptx::describe(memory.left(0) + warpgroup * 64 * kPanelRow);
  const uint64_t first_right = ptx::describe(memory.right(0), kPanelBytes);
  const auto start = [&](int step) {
    const int stage = cursor.stage;
    ptx::wait(&memory.barriers.full[stage], cursor.parity);
    multiply(ptx::further(first_left, stage * kStageBytes),
             ptx::further(first_right, stage * kStageBytes), stage, step);
    ptx::end_products();
    cursor.next();
    return stage;
  };
  int before = start(0);
#pragma unroll 1
  for (int step = 1; step < steps; ++step) {
    const int stage = start(step);
    ptx::wait_products<1>();
    release(memory, before);
    before = stage;
  }
  ptx::wait_products<0>();
  ptx::fence_results(sums);
  release(memory, before);
}

}  // namespace ferry::kernels::cuda::grouped
