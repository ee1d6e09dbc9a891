// The memory that gradients of attention are computed in on a Hopper GPU, beside what they are
// given: the kernels take it (cuda/attention/hopper_backward.cu), and plans count it without a GPU.
#pragma once

#include <cstdint>

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

}  // namespace ferry::kernels
