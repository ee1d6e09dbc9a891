// The weights that a run begins with.
//
// Source: Megatron-LM, core/utils.py (init_method_normal, scaled_init_method_normal); GPT-2's
// scaling of what goes into the residual stream; swiss-ai/Megatron-LM for xIELU.
#pragma once

#include <cstdint>
#include <span>

#include "ckpt/megatron/model/architecture.h"
#include "ckpt/memory/region.h"
#include "kernels/kernels.h"

namespace ferry {

/// Fills parts of the model's tensors. Each element is a function of the seed, its tensor's name
/// and its place in the whole tensor: the same at every layout.
void initialise(kernels::Kernels& kernels, std::span<const Region> regions,
                const Architecture& architecture, int64_t seed);

}  // namespace ferry
