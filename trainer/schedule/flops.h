// Floating-point operations of an iteration, as Megatron-LM counts them: matrix products of forward
// and backward pass, three times the forward's; half of the attention scores for the causal mask.
//
// Source: Megatron-LM megatron/training/training.py (num_floating_point_operations).
#pragma once

#include <cstdint>

#include "trainer/arguments/train_arguments.h"

namespace ferry {

enum class AttentionCount : uint8_t {
  causal,  // today
  full,    // until 2025, and in other trees
};

/// Of `samples` sequences; `arguments` are complete, the vocabulary settled. Mixtures count the
/// experts that a token goes to, and shared ones; prediction layers and latent attention are known.
double floating_point_operations(const TrainArguments& arguments, int64_t samples,
                                 AttentionCount count = AttentionCount::causal);

/// A rank's 10^12 operations a second.
double teraflops(double operations, double seconds, int64_t world_size);

}  // namespace ferry
