// Products of 64 rows by 16 to 256 columns on Hopper's tensor cores (wgmma), of operands that lie
// in shared memory either way. Only for sm_90a.
#pragma once

#include <type_traits>

#include "kernels/cuda/launch.cuh"

namespace ferry::kernels::cuda::ptx {

/// add<T, LEFT, RIGHT>(d, a, b, adds): d = a · b, or d += a · b where `adds`; 64 rows, N columns,
/// depth 16, sums in fp32, of which each thread has N / 2. a and b are descriptions
/// (ptx.cuh). LEFT, RIGHT: 0 where the operand's rows in memory run along the depth, 1 where each
/// has one depth.
template <int N>
struct Product;

// Registers %0 to %(8 I + 7), as text and as operands.
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
#define FERRY_MULTIPLY(N, I, TYPE, A, B, ADDS, LEFT, RIGHT)                                        \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADDS                                            \
               ", 0;\n"                                                                            \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" FERRY_TEXT_##I \
               "}, " A ", " B ", p, 1, 1, " LEFT ", " RIGHT ";\n}\n"                               \
               : FERRY_SUMS_##I                                                                    \
               : "l"(a), "l"(b), "r"(adds), "n"(LEFT_ACROSS), "n"(RIGHT_ACROSS))
#define FERRY_PRODUCT(N, I, ...)                                                      \
  template <>                                                                         \
  struct Product<N> {                                                                 \
    template <typename T, int LEFT_ACROSS, int RIGHT_ACROSS>                          \
    static __device__ void add(float (&d)[N / 2], uint64_t a, uint64_t b, int adds) { \
      if constexpr (std::is_same_v<T, bf16>) {                                        \
        FERRY_MULTIPLY(N, I, "bf16", __VA_ARGS__);                                    \
      } else {                                                                        \
        FERRY_MULTIPLY(N, I, "f16", __VA_ARGS__);                                     \
      }                                                                               \
    }                                                                                 \
  }
FERRY_PRODUCT(16, 0, "%8", "%9", "%10", "%11", "%12");
FERRY_PRODUCT(32, 1, "%16", "%17", "%18", "%19", "%20");
FERRY_PRODUCT(48, 2, "%24", "%25", "%26", "%27", "%28");
FERRY_PRODUCT(64, 3, "%32", "%33", "%34", "%35", "%36");
FERRY_PRODUCT(80, 4, "%40", "%41", "%42", "%43", "%44");
FERRY_PRODUCT(96, 5, "%48", "%49", "%50", "%51", "%52");
FERRY_PRODUCT(112, 6, "%56", "%57", "%58", "%59", "%60");
FERRY_PRODUCT(128, 7, "%64", "%65", "%66", "%67", "%68");
FERRY_PRODUCT(144, 8, "%72", "%73", "%74", "%75", "%76");
FERRY_PRODUCT(160, 9, "%80", "%81", "%82", "%83", "%84");
FERRY_PRODUCT(176, 10, "%88", "%89", "%90", "%91", "%92");
FERRY_PRODUCT(192, 11, "%96", "%97", "%98", "%99", "%100");
FERRY_PRODUCT(208, 12, "%104", "%105", "%106", "%107", "%108");
FERRY_PRODUCT(224, 13, "%112", "%113", "%114", "%115", "%116");
FERRY_PRODUCT(240, 14, "%120", "%121", "%122", "%123", "%124");
FERRY_PRODUCT(256, 15, "%128", "%129", "%130", "%131", "%132");
#undef FERRY_PRODUCT
#undef FERRY_MULTIPLY
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

}  // namespace ferry::kernels::cuda::ptx
