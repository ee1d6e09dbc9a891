#include "kernels/cpu/targets/targets.h"

namespace ferry::kernels {

static constexpr Target kTargets[] = {{"avx512", avx512::new_kernels},
                                      {"avx2", avx2::new_kernels},
                                      {"portable", portable::new_kernels}};

// The levels of the x86-64 ABI supplement: x86-64-v4 and x86-64-v3.
std::span<const Target> targets_of_processor() {
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const std::span<const Target> all(kTargets);
  if (!has_avx2) return all.last(1);
  return has_avx512 ? all : all.last(2);
}

}  // namespace ferry::kernels
