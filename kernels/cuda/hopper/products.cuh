// Hopper's products on tensor cores (wgmma): 64 rows, 16 to 256 columns N, depth 16. Sums are fp32;
// each thread of the warpgroup has N / 2 of them.
//
// Operands in shared memory have rows of 128 bytes (64 elements of 16 bits), whose eight blocks of
// 16 bytes are permuted by the row's number (TMA's 128-byte swizzle). Eight rows, 1024 bytes, are
// an atom; tiles wider than 64 elements are consecutive panels. Only for sm_90a.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/hopper/ptx.cuh"

namespace ferry::kernels::cuda {

constexpr int kPanelRow = 128;  // bytes of a row in shared memory

namespace ptx {

/// Describes an operand. Read along its rows (depth within the row), `panel` is unused. Read across
/// them (rows are the depth), `panel` is the distance between panels in bytes.
__device__ inline uint64_t describe(const void* tile, int panel = 16) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kAtoms = uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kAtoms | static_cast<uint64_t>(panel / 16) << 16 |
         ((shared(tile) & 0x3FFFF) >> 4);
}
/// The same operand, `bytes` further on.
__device__ inline uint64_t further(uint64_t description, int bytes) {
  return description + static_cast<uint64_t>(bytes / 16);
}

/// Needed between register writes and products that use them.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of products that is waited for as one.
__device__ inline void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most N groups are in flight. Results of completed ones must pass through
/// fence_results() before use.
template <int N>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/// Prevents the compiler from using or reassigning the registers before this point.
template <int N>
__device__ inline void fence_results(float (&registers)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int N>
__device__ inline void fence_results(uint32_t (&registers)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

/// Factors of 8-bit formats. Two of their elements take the place of one of 16 bits: products of
/// the same operands in bytes have depth 32, and no factor is read across its rows.
struct E4m3ByE4m3 {};
struct E4m3ByE5m2 {};
struct E5m2ByE4m3 {};
template <typename T>
constexpr bool kIs8Bit =
    std::is_same_v<T, E4m3ByE4m3> || std::is_same_v<T, E4m3ByE5m2> || std::is_same_v<T, E5m2ByE4m3>;

// multiply<T, LEFT_ACROSS, RIGHT_ACROSS>(d, a, b, adds): d = a · b, or d += a · b if `adds`, for
//     described operands. An operand's rows run along the depth, unless it is read ACROSS
//     them: each row has one depth then.
// multiply<T>(d, a0, a1, a2, a3, b): d += a · b. a is in registers, and b is read across its rows.

// The sums, registers %0 to %(8 I + 7), as text and as operands.
#define FERRY_TEXT_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FERRY_TEXT_1 FERRY_TEXT_0 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FERRY_TEXT_2 FERRY_TEXT_1 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FERRY_TEXT_3 FERRY_TEXT_2 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FERRY_TEXT_4 FERRY_TEXT_3 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FERRY_TEXT_5 FERRY_TEXT_4 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FERRY_TEXT_6 FERRY_TEXT_5 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define FERRY_TEXT_7 FERRY_TEXT_6 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FERRY_TEXT_8 FERRY_TEXT_7 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define FERRY_TEXT_9 FERRY_TEXT_8 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define FERRY_TEXT_10 FERRY_TEXT_9 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define FERRY_TEXT_11 FERRY_TEXT_10 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define FERRY_TEXT_12 FERRY_TEXT_11 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define FERRY_TEXT_13 FERRY_TEXT_12 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define FERRY_TEXT_14 FERRY_TEXT_13 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define FERRY_TEXT_15 FERRY_TEXT_14 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define FERRY_EIGHT(i)                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define FERRY_SUMS_0 FERRY_EIGHT(0)
#define FERRY_SUMS_1 FERRY_SUMS_0, FERRY_EIGHT(8)
#define FERRY_SUMS_2 FERRY_SUMS_1, FERRY_EIGHT(16)
#define FERRY_SUMS_3 FERRY_SUMS_2, FERRY_EIGHT(24)
#define FERRY_SUMS_4 FERRY_SUMS_3, FERRY_EIGHT(32)
#define FERRY_SUMS_5 FERRY_SUMS_4, FERRY_EIGHT(40)
#define FERRY_SUMS_6 FERRY_SUMS_5, FERRY_EIGHT(48)
#define FERRY_SUMS_7 FERRY_SUMS_6, FERRY_EIGHT(56)
#define FERRY_SUMS_8 FERRY_SUMS_7, FERRY_EIGHT(64)
#define FERRY_SUMS_9 FERRY_SUMS_8, FERRY_EIGHT(72)
#define FERRY_SUMS_10 FERRY_SUMS_9, FERRY_EIGHT(80)
#define FERRY_SUMS_11 FERRY_SUMS_10, FERRY_EIGHT(88)
#define FERRY_SUMS_12 FERRY_SUMS_11, FERRY_EIGHT(96)
#define FERRY_SUMS_13 FERRY_SUMS_12, FERRY_EIGHT(104)
#define FERRY_SUMS_14 FERRY_SUMS_13, FERRY_EIGHT(112)
#define FERRY_SUMS_15 FERRY_SUMS_14, FERRY_EIGHT(120)
#define FERRY_PRODUCT_OF(N, I, TYPE, A, B, ADDS, LEFT, RIGHT)                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADDS                                  \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE     \
               " {" FERRY_TEXT_##I "}, " A ", " B ", p, 1, 1, " LEFT ", " RIGHT ";\n}\n" \
               : FERRY_SUMS_##I                                                          \
               : "l"(a), "l"(b), "r"(adds), "n"(int{LEFT_ACROSS}), "n"(int{RIGHT_ACROSS}))
#define FERRY_PRODUCT_OF_CODES(N, I, TYPES, A, B, ADDS, ...)                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADDS                                          \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k32.f32." TYPES " {" FERRY_TEXT_##I \
               "}, " A ", " B ", p, 1, 1;\n}\n"                                                  \
               : FERRY_SUMS_##I                                                                  \
               : "l"(a), "l"(b), "r"(adds))
#define FERRY_PRODUCT_OF_REGISTERS(N, I, TYPE, A0, A1, A2, A3, B)                                  \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" FERRY_TEXT_##I \
               "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B ", 1, 1, 1, 1;\n"                         \
               : FERRY_SUMS_##I                                                                    \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b))
// The last five are the operand numbers of the factors, after the sums.
#define FERRY_PRODUCT(N, I, ...)                                                           \
  template <typename T, bool LEFT_ACROSS = false, bool RIGHT_ACROSS = false>               \
  __device__ inline void multiply(float(&d)[N / 2], uint64_t a, uint64_t b, int adds) {    \
    if constexpr (std::is_same_v<T, E4m3ByE4m3>) {                                         \
      FERRY_PRODUCT_OF_CODES(N, I, "e4m3.e4m3", __VA_ARGS__);                              \
    } else if constexpr (std::is_same_v<T, E4m3ByE5m2>) {                                  \
      FERRY_PRODUCT_OF_CODES(N, I, "e4m3.e5m2", __VA_ARGS__);                              \
    } else if constexpr (std::is_same_v<T, E5m2ByE4m3>) {                                  \
      FERRY_PRODUCT_OF_CODES(N, I, "e5m2.e4m3", __VA_ARGS__);                              \
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {                               \
      FERRY_PRODUCT_OF(N, I, "bf16", __VA_ARGS__);                                         \
    } else {                                                                               \
      FERRY_PRODUCT_OF(N, I, "f16", __VA_ARGS__);                                          \
    }                                                                                      \
  }                                                                                        \
  template <typename T>                                                                    \
  __device__ inline void multiply(float(&d)[N / 2], uint32_t a0, uint32_t a1, uint32_t a2, \
                                  uint32_t a3, uint64_t b) {                               \
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {                                      \
      FERRY_PRODUCT_OF_REGISTERS(N, I, "bf16", __VA_ARGS__);                               \
    } else {                                                                               \
      FERRY_PRODUCT_OF_REGISTERS(N, I, "f16", __VA_ARGS__);                                \
    }                                                                                      \
  }
FERRY_PRODUCT(16, 0, "%8", "%9", "%10", "%11", "%12")
FERRY_PRODUCT(32, 1, "%16", "%17", "%18", "%19", "%20")
FERRY_PRODUCT(48, 2, "%24", "%25", "%26", "%27", "%28")
FERRY_PRODUCT(64, 3, "%32", "%33", "%34", "%35", "%36")
FERRY_PRODUCT(80, 4, "%40", "%41", "%42", "%43", "%44")
FERRY_PRODUCT(96, 5, "%48", "%49", "%50", "%51", "%52")
FERRY_PRODUCT(112, 6, "%56", "%57", "%58", "%59", "%60")
FERRY_PRODUCT(128, 7, "%64", "%65", "%66", "%67", "%68")
FERRY_PRODUCT(144, 8, "%72", "%73", "%74", "%75", "%76")
FERRY_PRODUCT(160, 9, "%80", "%81", "%82", "%83", "%84")
FERRY_PRODUCT(176, 10, "%88", "%89", "%90", "%91", "%92")
FERRY_PRODUCT(192, 11, "%96", "%97", "%98", "%99", "%100")
FERRY_PRODUCT(208, 12, "%104", "%105", "%106", "%107", "%108")
FERRY_PRODUCT(224, 13, "%112", "%113", "%114", "%115", "%116")
FERRY_PRODUCT(240, 14, "%120", "%121", "%122", "%123", "%124")
FERRY_PRODUCT(256, 15, "%128", "%129", "%130", "%131", "%132")
#undef FERRY_PRODUCT
#undef FERRY_PRODUCT_OF
#undef FERRY_PRODUCT_OF_CODES
#undef FERRY_PRODUCT_OF_REGISTERS
#undef FERRY_EIGHT
#undef FERRY_TEXT_0
#undef FERRY_SUMS_0
#undef FERRY_TEXT_1
#undef FERRY_SUMS_1
#undef FERRY_TEXT_2
#undef FERRY_SUMS_2
#undef FERRY_TEXT_3
#undef FERRY_SUMS_3
#undef FERRY_TEXT_4
#undef FERRY_SUMS_4
#undef FERRY_TEXT_5
#undef FERRY_SUMS_5
#undef FERRY_TEXT_6
#undef FERRY_SUMS_6
#undef FERRY_TEXT_7
#undef FERRY_SUMS_7
#undef FERRY_TEXT_8
#undef FERRY_SUMS_8
#undef FERRY_TEXT_9
#undef FERRY_SUMS_9
#undef FERRY_TEXT_10
#undef FERRY_SUMS_10
#undef FERRY_TEXT_11
#undef FERRY_SUMS_11
#undef FERRY_TEXT_12
#undef FERRY_SUMS_12
#undef FERRY_TEXT_13
#undef FERRY_SUMS_13
#undef FERRY_TEXT_14
#undef FERRY_SUMS_14
#undef FERRY_TEXT_15
#undef FERRY_SUMS_15

}  // namespace ptx

}  // namespace ferry::kernels::cuda
