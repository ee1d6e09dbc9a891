// The instruction sets that the operations are compiled for.
#pragma once

#include <span>

#include "kernels/kernels.h"

namespace ferry::kernels {

struct Target {
  const char* name;
  Kernels* (*new_kernels)(int threads);
};

namespace portable {
Kernels* new_kernels(int threads);
}
namespace avx2 {
Kernels* new_kernels(int threads);
}
namespace avx512 {
Kernels* new_kernels(int threads);
}

/// Those that this machine's CPU supports, the best first.
std::span<const Target> targets_of_processor();

}  // namespace ferry::kernels
