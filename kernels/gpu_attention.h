// Which kernels compute attention on a GPU and how much workspace they need: used by the kernels
// (cuda/attention) and by memory plans, which have no GPU.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "kernels/attention.h"

namespace ferry::kernels {

/// Queries per unit of gradient sums, keys per thread block, and the multiple that rows of
/// per-query numbers are padded to.
constexpr int kSumRows = 64, kSumKeys = 128, kRowBlock = 128;

/// Columns of half a tile's sums; a panel for heads wider than 64.
constexpr int half_columns(int columns) { return columns > 64 ? 64 : 32; }

/// Whether gradients of queries, keys and values are computed in one pass over the scores. Wider
/// heads do not fit the registers. With documents, blocks of keys have few queries each, and their
/// overhead outweighs the two products saved.
bool is_in_one_pass(const AttentionShape& shape);

/// Columns of a head in that pass's registers.
int register_columns(const AttentionShape& shape);

/// Number of queries of a head, padded to kRowBlock.
int64_t padded_queries(const AttentionShape& shape);

/// Sizes in elements of four bytes.
struct AttentionWorkspace {
  int64_t rows = 0;        // two numbers per query: log-sum and delta
  int64_t query_sums = 0;  // gradients of queries, in fp32
  int64_t key_sums = 0;    // gradients of keys by parts of a group's heads; as many for values
  int64_t turns = 0;       // counters of blocks that add to the same sums
  int parts = 1;           // parts of a group's heads

  int64_t count() const noexcept { return 2 * rows + query_sums + 2 * key_sums + turns; }
};
AttentionWorkspace one_pass_workspace(const AttentionShape& shape, int columns);
AttentionWorkspace two_pass_workspace(const AttentionShape& shape);

/// Bytes needed for types that these kernels support; 0 for others.
int64_t attention_workspace_bytes(const AttentionBackward& x);

// Attention that a library's fused kernels compute instead of our own, and its form: causal, over
// whole sequences, as batches of heads.
//
// Source: cuDNN's developer guide, "Scaled Dot Product Attention" (shapes, strides, workspace of
// the deterministic backward pass).

/// Strides in elements.
struct FusedStrides {
  int64_t batch = 0, head = 0, position = 0;
  auto operator<=>(const FusedStrides&) const = default;
};

/// A batch is a group of query heads of one sequence with its shared key and value head. Query
/// heads of several groups have no common stride in Megatron-LM's [positions, sequences, groups,
/// query heads and key and value, dim]; groups of several sequences do.
struct FusedAttention {
  Type type = Type::bf16;
  int64_t batches = 0, heads = 0;  // query heads of a batch
  int64_t positions = 0, dim = 0, value_dim = 0;
  double scale = 0;
  FusedStrides q, k, v, output;
  auto operator<=>(const FusedAttention&) const = default;
};

/// Empty for attention that our own kernels compute: other types, masks, layouts and alignments,
/// positions that are not a multiple of 128, dropout, parts of sequences, accumulated gradients.
/// Depends only on sizes and addresses.
std::optional<FusedAttention> fused(const AttentionForward& x);
std::optional<FusedAttention> fused(const AttentionBackward& x);

/// Number of batches whose gradients are computed at once, a divisor of all batches so that all
/// launches are alike. Deterministic kernels store the gradients of all scores, which are limited
/// to a gibibyte. 0 if a single batch exceeds it.
int64_t batches_at_once(const FusedAttention& x);

/// Workspace bytes of those kernels for this many batches: gradients of scores, a sum for each
/// query, and the gradients of each query head's keys and values if they are shared.
int64_t fused_bytes(const FusedAttention& x, int64_t batches);

}  // namespace ferry::kernels
