// The memory that gradients of attention are computed in on a Hopper GPU, beside what they are
// given: the kernels take it (cuda/attention/hopper_backward.cu), and plans count it without a GPU.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "kernels/attention.h"

namespace ferry::kernels {

/// Queries whose gradients are summed together, keys that a block of threads has, and queries that
/// numbers by row are padded to.
constexpr int kSumRows = 64, kSumKeys = 128, kRowBlock = 128;

/// Columns of a half of a tile's sums: of heads wider than 64, a panel.
constexpr int half_columns(int columns) { return columns > 64 ? 64 : 32; }

/// Whether gradients of queries, keys and values are computed in one pass over the scores. Of wider
/// heads the registers do not hold them all. Of documents, blocks of keys have few queries each,
/// and what a block costs beside its products weighs more than two products saved.
bool is_in_one_pass(const AttentionShape& shape);

/// Columns that heads have in the registers of that pass.
int register_columns(const AttentionShape& shape);

/// Queries of a head, padded to kRowBlock.
int64_t padded_queries(const AttentionShape& shape);

/// In numbers of four bytes.
struct AttentionWorkspace {
  int64_t rows = 0;        // of each of two numbers a query: its log-sum, and delta
  int64_t query_sums = 0;  // gradients of queries, in fp32
  int64_t key_sums = 0;    // gradients of keys by parts of a group's heads, and as many of values
  int64_t turns = 0;       // of blocks that add to the same sums
  int parts = 1;           // of a group's heads

  int64_t count() const noexcept { return 2 * rows + query_sums + 2 * key_sums + turns; }
};
AttentionWorkspace one_pass_workspace(const AttentionShape& shape, int columns);
AttentionWorkspace two_pass_workspace(const AttentionShape& shape);

/// Bytes, of types that these kernels take; 0 of others.
int64_t attention_workspace_bytes(const AttentionBackward& x);

// Which attention a library's fused kernels compute in the place of our own, and how they see it:
// causal, of whole sequences, as batches of heads.
//
// Source: cuDNN's developer guide, "Scaled Dot Product Attention" (shapes, strides, workspace of
// the deterministic backward pass).

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
