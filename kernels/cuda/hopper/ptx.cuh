// Hopper's instructions: the tensor cores' asynchronous product (wgmma), the copy engine (TMA) and
// the barriers in shared memory that tell of it, as functions. Only for sm_90a.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ferry::kernels::cuda::ptx {

__device__ inline uint32_t shared(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// --- Barriers in shared memory. A phase ends when all arrivals, and all bytes that were announced,
// have come; waiters name the parity of the phase that they wait for.

__device__ inline void init_barrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(arrivals)
               : "memory");
}
/// Makes initialised barriers visible to the copy engine.
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

/// Barriers of a part of the block's threads, by number (0 is __syncthreads' own).
__device__ inline void sync_some(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ inline void arrive_some(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// --- Fences between what this thread, and those that it has waited for, did to memory and what the
// tensor cores and the copy engine do with it. Each is for one kind of memory: the instruction for
// all kinds waits for the whole device.

__device__ inline void fence_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void fence_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// --- Copies.

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
/// Bytes in a row: addresses and number are multiples of 16.
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

// --- Registers: a warpgroup gives back or takes what its role needs.

template <int N>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// --- Products. Operands in shared memory lie in rows of 128 bytes (64 elements of 16 bits), whose
// eight blocks of 16 bytes are permuted by the row's number (the copy engine's 128-byte swizzle).
// Eight rows, 1024 bytes, are an atom; tiles wider than 64 elements are panels one after another.

/// Describes an operand. Read along its rows (depth lies in the row): `panel` is of no concern.
/// Read across them (depth are the rows): `panel` is the distance of panels in bytes.
__device__ inline uint64_t describe(const void* tile, int panel = 16) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kAtoms = uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kAtoms | static_cast<uint64_t>(panel / 16) << 16 |
         ((shared(tile) & 0x3FFFF) >> 4);
}
/// The same operand, `bytes` further on.
__device__ inline uint64_t further(uint64_t description, int bytes) {
  return description + static_cast<uint64_t>(bytes / 16);
}

/// Between writes of registers and products that use them.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of products that is waited for as one.
__device__ inline void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most N groups are under way. What the done ones wrote goes through settle() before use.
template <int N>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/// The compiler may neither use the registers before this point nor give them to others.
template <int N>
__device__ inline void settle(float (&registers)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int N>
__device__ inline void settle(uint32_t (&registers)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

// wgmma.m64nNk16: 64 rows, N columns, depth 16; fp32 sums, N / 2 in each thread.
//   multiply(d, a, b, adds, T())             a and b are descriptions, both read along their rows
//   multiply(d, a0..a3, b, T())              d += a · b: a in registers, b read across its rows

// The instruction's text numbers its operands, the sums first: PLACES are theirs, I0 to I4 those of
// the factors behind them.
#define FERRY_MULTIPLY_TYPE(T, NAME, COLUMNS, COUNT, PLACES, I0, I1, I2, I3, I4, ...)             \
  __device__ inline void multiply(float(&d)[COUNT], uint64_t a, uint64_t b, int adds, T) {        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" I2                                          \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." NAME "." NAME       \
                 " {" PLACES "}, %" I0 ", %" I1 ", p, 1, 1, 0, 0;\n}\n"                           \
                 : __VA_ARGS__                                                                    \
                 : "l"(a), "l"(b), "r"(adds));                                                    \
  }                                                                                               \
  __device__ inline void multiply(float(&d)[COUNT], uint32_t a0, uint32_t a1, uint32_t a2,        \
                                  uint32_t a3, uint64_t b, T) {                                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." NAME "." NAME " {" PLACES \
                 "}, {%" I0 ", %" I1 ", %" I2 ", %" I3 "}, %" I4 ", 1, 1, 1, 1;\n"                \
                 : __VA_ARGS__                                                                    \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));                                   \
  }
#define FERRY_MULTIPLY(...)                               \
  FERRY_MULTIPLY_TYPE(__nv_bfloat16, "bf16", __VA_ARGS__) \
  FERRY_MULTIPLY_TYPE(__half, "f16", __VA_ARGS__)
// Of a thread's sums: their places in the text, and what they are.
#define FERRY_SUMS_8(i)                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define FERRY_PLACES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define FERRY_SUMS_16 FERRY_SUMS_8(0), FERRY_SUMS_8(8)
#define FERRY_PLACES_32                                                               \
  FERRY_PLACES_16                                                                     \
      ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, " \
      "%31"
#define FERRY_SUMS_32 FERRY_SUMS_16, FERRY_SUMS_8(16), FERRY_SUMS_8(24)
#define FERRY_PLACES_48                                                               \
  FERRY_PLACES_32                                                                     \
      ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
      "%47"
#define FERRY_SUMS_48 FERRY_SUMS_32, FERRY_SUMS_8(32), FERRY_SUMS_8(40)
#define FERRY_PLACES_64                                                               \
  FERRY_PLACES_48                                                                     \
      ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, " \
      "%63"
#define FERRY_SUMS_64 FERRY_SUMS_48, FERRY_SUMS_8(48), FERRY_SUMS_8(56)
#define FERRY_PLACES_96                                                                     \
  FERRY_PLACES_64                                                                           \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define FERRY_SUMS_96 \
  FERRY_SUMS_64, FERRY_SUMS_8(64), FERRY_SUMS_8(72), FERRY_SUMS_8(80), FERRY_SUMS_8(88)
FERRY_MULTIPLY("32", 16, FERRY_PLACES_16, "16", "17", "18", "19", "20", FERRY_SUMS_16)
FERRY_MULTIPLY("64", 32, FERRY_PLACES_32, "32", "33", "34", "35", "36", FERRY_SUMS_32)
FERRY_MULTIPLY("96", 48, FERRY_PLACES_48, "48", "49", "50", "51", "52", FERRY_SUMS_48)
FERRY_MULTIPLY("128", 64, FERRY_PLACES_64, "64", "65", "66", "67", "68", FERRY_SUMS_64)
FERRY_MULTIPLY("192", 96, FERRY_PLACES_96, "96", "97", "98", "99", "100", FERRY_SUMS_96)
#undef FERRY_PLACES_16
#undef FERRY_SUMS_16
#undef FERRY_PLACES_32
#undef FERRY_SUMS_32
#undef FERRY_PLACES_48
#undef FERRY_SUMS_48
#undef FERRY_PLACES_64
#undef FERRY_SUMS_64
#undef FERRY_PLACES_96
#undef FERRY_SUMS_96
#undef FERRY_SUMS_8
#undef FERRY_MULTIPLY
#undef FERRY_MULTIPLY_TYPE

}  // namespace ferry::kernels::cuda::ptx
