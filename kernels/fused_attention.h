// Which attention a library's fused kernels compute in the place of our own, and how they see it:
// causal, of whole sequences, as batches of heads.
//
// Source: cuDNN's developer guide, "Scaled Dot Product Attention" (shapes, strides, workspace of
// the deterministic backward pass).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "kernels/attention.h"

namespace ferry::kernels {

/// Elements from one to the next.
struct FusedStrides {
  int64_t batch = 0, head = 0, position = 0;
  auto operator<=>(const FusedStrides&) const = default;
};

/// A batch is a group of query heads of one sequence, and the one head of keys and values that they
/// share. Query heads of several groups have no common stride in Megatron-LM's [positions,
/// sequences, groups, query heads and key and value, dim]; groups of several sequences do.
struct FusedAttention {
  Type type = Type::bf16;
  int64_t batches = 0, heads = 0;  // query heads of a batch
  int64_t positions = 0, dim = 0, value_dim = 0;
  double scale = 0;
  FusedStrides q, k, v, output;
  auto operator<=>(const FusedAttention&) const = default;
};

/// Nothing of what is left to our own kernels: other types, masks, layouts and alignments,
/// positions that are no multiple of 128, dropout, parts of sequences, gradients that are added to.
/// It follows from sizes and addresses alone.
std::optional<FusedAttention> fused(const AttentionForward& x);
std::optional<FusedAttention> fused(const AttentionBackward& x);

/// Of how many batches gradients are computed at once: a divisor of all batches, so that every time
/// is like the first. Kernels that give the same bits every time hold the gradients of all scores
/// that they are asked for in memory: for those there is room of a gibibyte. 0 where that does not
/// do for a single batch.
int64_t batches_at_once(const FusedAttention& x);

/// Bytes that so many batches' gradients are computed in, by those kernels: beside the scores', a
/// sum for each query, and the gradients of each query head's keys and values where they share
/// them.
int64_t fused_bytes(const FusedAttention& x, int64_t batches);

}  // namespace ferry::kernels
