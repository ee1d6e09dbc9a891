// Hopper's instructions that the backward pass in one pass needs beside those of ptx.cuh.
#pragma once

#include "kernels/cuda/hopper/ptx.cuh"

namespace ferry::kernels::cuda::ptx {

/// Writes four matrices of 8 rows and 8 columns of 16 bits, turned: lane l names the row of 16
/// bytes that column l % 8 of matrix l / 8 becomes.
__device__ inline void store_turned(void* row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared(row)),
      "r"(m0), "r"(m1), "r"(m2), "r"(m3)
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

// --- Bytes in a row from shared to global memory: addresses and number are multiples of 16.

__device__ inline void write_bytes(float* to, const float* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared(from)), "r"(bytes)
               : "memory");
}
/// The same, adding to what is there.
__device__ inline void add_bytes(float* to, const float* from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(shared(from)), "r"(bytes)
      : "memory");
}
__device__ inline void end_writes() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until this thread's writes have read their shared memory.
__device__ inline void wait_reads() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// Until all but the last N of them are done.
template <int N>
__device__ inline void wait_writes() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

// --- Numbers in global memory by which blocks wait for each other.

__device__ inline int read_turn(const int* turn) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(turn) : "memory");
  return value;
}
__device__ inline void set_turn(int* turn, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(value) : "memory");
}

// --- Products d = a · b with both factors in shared memory: a read along its rows, b across them.

#define FERRY_D8(i)                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define FERRY_ACROSS(TYPE, NAME)                                                                  \
  __device__ inline void multiply_across(float(&d)[16], uint64_t a, uint64_t b, int adds, TYPE) { \
    asm volatile(                                                                                 \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"                                              \
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." NAME "." NAME                               \
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "               \
        "%16, %17, p, 1, 1, 0, 1;\n}\n"                                                           \
        : FERRY_D8(0), FERRY_D8(8)                                                                \
        : "l"(a), "l"(b), "r"(adds));                                                             \
  }                                                                                               \
  __device__ inline void multiply_across(float(&d)[32], uint64_t a, uint64_t b, int adds, TYPE) { \
    asm volatile(                                                                                 \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                              \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME                               \
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "             \
        "%31}, %32, %33, p, 1, 1, 0, 1;\n}\n"                                                     \
        : FERRY_D8(0), FERRY_D8(8), FERRY_D8(16), FERRY_D8(24)                                    \
        : "l"(a), "l"(b), "r"(adds));                                                             \
  }
FERRY_ACROSS(__nv_bfloat16, "bf16")
FERRY_ACROSS(__half, "f16")
#undef FERRY_ACROSS
#undef FERRY_D8

}  // namespace ferry::kernels::cuda::ptx
