// Floating-point operations of an iteration, as Megatron-LM counts them: matrix products of the
// forward and backward pass, three times the forward's, and half of the attention scores because of
// the causal mask.
//
// Source: Megatron-LM megatron/training/training.py (num_floating_point_operations).
#pragma once

#include <cstdint>

#include "trainer/arguments/train_arguments.h"

namespace ferry {

enum class AttentionCount : uint8_t {
  causal,  // today
  full,    // until 2025, and in other forks
};

/// Operations for `samples` sequences; `arguments` must be complete, with the vocabulary. For
/// mixtures counts the experts that a token is routed to and shared ones; includes MTP and latent
/// attention.
double floating_point_operations(const TrainArguments& arguments, int64_t samples,
                                 AttentionCount count = AttentionCount::causal);

/// 10^12 operations per second and rank.
double teraflops(double operations, double seconds, int64_t world_size);

}  // namespace ferry
