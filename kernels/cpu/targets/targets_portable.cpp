#include "kernels/cpu/targets/targets.h"

namespace ferry::kernels {

static constexpr Target kTargets[] = {{"portable", portable::new_kernels}};

std::span<const Target> targets_of_processor() { return kTargets; }

}  // namespace ferry::kernels
