// Hopper's instructions as functions: the copy engine (TMA), its barriers in shared memory, and
// related instructions. Tensor core products are in products.cuh. Only for sm_90a.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace ferry::kernels::cuda::ptx {

__device__ inline uint32_t shared(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// --- Barriers in shared memory. A phase ends when all arrivals, and all announced bytes, have
// arrived; waiters specify the parity of the phase that they wait for.

__device__ inline void init_barrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(arrivals)
               : "memory");
}
/// Makes initialized barriers visible to TMA.
__device__ inline void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(barrier)) : "memory");
}
__device__ inline void arrive_and_expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(barrier)),
               "r"(bytes)
               : "memory");
}
__device__ inline void wait(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(shared(barrier)),
      "r"(parity)
      : "memory");
}

/// Whether the barrier's phase has ended.
__device__ inline bool is_over(uint64_t* barrier, int parity) {
  int is_over;
  asm volatile(
      "{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.s32 %0, 1, 0, done;\n}\n"
      : "=r"(is_over)
      : "r"(shared(barrier)), "r"(parity)
      : "memory");
  return is_over != 0;
}

/// Barriers of a part of the block's threads, by number (0 is __syncthreads' own).
__device__ inline void sync_some(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ inline void arrive_some(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// --- Fences between memory accesses of this thread, and of those that it has waited for, and
// accesses by tensor cores and TMA. Each is for one kind of memory: the instruction for all kinds
// waits for the whole device.

__device__ inline void fence_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void fence_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// --- Copies to shared memory.

/// A box of a tensor of four dimensions, whose first element is at (c0, c1, c2, c3).
__device__ inline void copy_box(void* to, const CUtensorMap* map, uint64_t* barrier, int c0, int c1,
                                int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared(to)),
      "l"(map), "r"(shared(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
__device__ inline void copy_box(void* to, const CUtensorMap* map, uint64_t* barrier, int c0, int c1,
                                int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared(to)),
      "l"(map), "r"(shared(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}
/// Contiguous bytes: addresses and size are multiples of 16.
__device__ inline void copy_bytes(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(shared(to)),
      "l"(from), "r"(bytes), "r"(shared(barrier))
      : "memory");
}
__device__ inline void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// --- Contiguous bytes from shared to global memory: addresses and size are multiples of 16.

__device__ inline void write_bytes(float* to, const float* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared(from)), "r"(bytes)
               : "memory");
}
/// The same, adding to the destination.
__device__ inline void add_bytes(float* to, const float* from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(shared(from)), "r"(bytes)
      : "memory");
}
__device__ inline void end_writes() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until this thread's writes have read their shared memory.
__device__ inline void wait_reads() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// Waits until all but the last N of them are done.
template <int N>
__device__ inline void wait_writes() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

/// Writes four transposed matrices of 8 x 8 elements of 16 bits: lane l provides the address of the
/// 16-byte row for column l % 8 of matrix l / 8.
__device__ inline void store_turned(void* row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared(row)),
      "r"(m0), "r"(m1), "r"(m2), "r"(m3)
      : "memory");
}

// --- Counters in global memory by which blocks wait for each other.

__device__ inline int read_turn(const int* turn) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(turn) : "memory");
  return value;
}
__device__ inline void set_turn(int* turn, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(value) : "memory");
}

// --- Register reallocation between warpgroups of different roles.

template <int N>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

}  // namespace ferry::kernels::cuda::ptx

namespace ferry::kernels::cuda {

/// Stages of shared memory are used in turn; the barriers' parity flips each time around.
template <int STAGES>
struct StageCursor {
  int stage = 0, parity = 0;
  __device__ void next() {
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace ferry::kernels::cuda
