#include "kernels/attention_workspace.h"

#include <algorithm>

namespace ferry::kernels {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int64_t padded_queries(const AttentionShape& shape) {
  return ceil_div(shape.queries, kRowBlock) * kRowBlock;
}

bool is_in_one_pass(const AttentionShape& shape) {
  return shape.dim <= 128 && !(shape.document_begin && shape.dropout == 0);
}

int register_columns(const AttentionShape& shape) {
  const int64_t dim = std::max(shape.dim, shape.value_dim);
  if (dim <= 64) return 64;
  return dim <= 96 && shape.dropout == 0 ? 96 : 128;
}

// More parts than these cost more to add up than they gain, and very long sequences, which have
// blocks enough, no memory.
AttentionWorkspace one_pass_workspace(const AttentionShape& s, int columns) {
  constexpr int kMostParts = 4;
  constexpr int64_t kMostSums = int64_t{1} << 28;
  const int64_t heads = s.sequences * s.heads, tiles = ceil_div(s.queries, kSumRows);
  const int64_t of_part =
      s.sequences * s.groups * ceil_div(s.keys, kSumKeys) * kSumKeys * int64_t{columns};
  AttentionWorkspace workspace{.rows = heads * padded_queries(s),
                               .query_sums = heads * tiles * kSumRows * 2 * half_columns(columns),
                               .turns = 2 * heads * tiles + 2,
                               .parts = kMostParts};
  int& parts = workspace.parts;
  while (parts > 1 && (s.heads / s.groups % parts != 0 || 2 * of_part * parts > kMostSums)) --parts;
  if (parts > 1) workspace.key_sums = of_part * parts;
  return workspace;
}

AttentionWorkspace two_pass_workspace(const AttentionShape& shape) {
  return {.rows = shape.sequences * shape.heads * padded_queries(shape)};
}

int64_t attention_workspace_bytes(const AttentionBackward& x) {
  if (x.q.type == Type::f32) return 0;
  const AttentionWorkspace workspace = is_in_one_pass(x.shape)
                                           ? one_pass_workspace(x.shape, register_columns(x.shape))
                                           : two_pass_workspace(x.shape);
  return 4 * workspace.count();
}

}  // namespace ferry::kernels
