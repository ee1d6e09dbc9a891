#include "kernels/gpu_attention.h"

#include <algorithm>
#include <initializer_list>

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

// More parts would cost more to sum than they gain; very long sequences have enough blocks and need
// no extra memory.
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

namespace {

constexpr int64_t kAlignment = 16;  // bytes, of rows
constexpr int64_t kPositions = 128;
constexpr int64_t kMost = int64_t{1} << 20;  // of positions and heads: their products fit 64 bits
constexpr int64_t kMostScoreBytes = int64_t{1} << 30;

bool is_plain(const AttentionShape& s) {
  return s.queries == s.keys && s.queries > 0 && s.queries % kPositions == 0 &&
         s.queries <= kMost && s.heads <= kMost && s.sequences > 0 && s.query_begin == 0 &&
         s.key_begin == 0 && s.window == 0 && s.dropout == 0 && s.document_begin == nullptr &&
         s.groups > 0 && s.heads % s.groups == 0;
}

// Head sizes of GPU tensor cores; the second is DeepSeek's latent attention.
bool has_dims(const AttentionShape& s) {
  const bool is_common = s.dim == s.value_dim && s.dim % 8 == 0 && s.dim >= 64 && s.dim <= 128;
  return is_common || (s.dim == 192 && s.value_dim == 128);
}

bool are_of_type(Type type, std::initializer_list<ConstArray> arrays) {
  for (const ConstArray& array : arrays) {
    if (array.type != type || reinterpret_cast<uintptr_t>(array.data) % kAlignment != 0) {
      return false;
    }
  }
  return type != Type::f32;
}

// Strides of dimensions of size 1 are set as for contiguous memory.
std::optional<FusedStrides> strides(const AttentionShape& s, const HeadStrides& at, int64_t heads,
                                    int64_t dim) {
  FusedStrides all{at.group, heads > 1 ? at.head : dim, at.position};
  if (s.groups == 1) all.batch = s.sequences > 1 ? at.sequence : s.queries * at.position;
  if (s.groups > 1 && s.sequences > 1 && at.sequence != s.groups * at.group) return std::nullopt;
  for (const int64_t stride : {all.batch, all.head, all.position}) {
    if (stride <= 0 || stride % (kAlignment / size_bytes(Type::bf16)) != 0) return std::nullopt;
  }
  return all;
}

template <typename Pass>
std::optional<FusedAttention> fused_pass(const Pass& x) {
  const AttentionShape& s = x.shape;
  if (!is_plain(s) || !has_dims(s)) return std::nullopt;
  const int64_t heads = s.heads / s.groups;
  const auto q = strides(s, x.q_strides, heads, s.dim), k = strides(s, x.k_strides, 1, s.dim);
  const auto v = strides(s, x.v_strides, 1, s.value_dim);
  const auto output = strides(s, x.output_strides, heads, s.value_dim);
  if (!q || !k || !v || !output) return std::nullopt;
  return FusedAttention{
      x.q.type, s.sequences * s.groups, heads, s.queries, s.dim, s.value_dim, s.scale, *q, *k, *v,
      *output};
}

}  // namespace

std::optional<FusedAttention> fused(const AttentionForward& x) {
  if (!are_of_type(x.q.type, {x.q, x.k, x.v, x.output})) return std::nullopt;
  return fused_pass(x);
}

std::optional<FusedAttention> fused(const AttentionBackward& x) {
  if (x.accumulate ||
      !are_of_type(x.q.type, {x.q, x.k, x.v, x.output, x.doutput, x.dq, x.dk, x.dv})) {
    return std::nullopt;
  }
  return fused_pass(x);
}

int64_t batches_at_once(const FusedAttention& x) {
  const int64_t each = x.heads * x.positions * x.positions * size_bytes(x.type);
  int64_t batches = std::min(x.batches, kMostScoreBytes / each);
  while (batches > 0 && x.batches % batches != 0) --batches;
  return batches;
}

int64_t fused_bytes(const FusedAttention& x, int64_t batches) {
  int64_t query = x.positions * size_bytes(x.type) + size_bytes(Type::f32);
  if (x.heads > 1) query += (x.dim + x.value_dim) * size_bytes(x.type);
  return batches * x.heads * x.positions * query;
}

}  // namespace ferry::kernels
