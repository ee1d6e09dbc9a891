// Scaled dot-product attention with grouped queries, without a matrix of scores in memory.
//
// Source: FlashAttention-2 (Dao 2023) for the passes; Ring Attention (Liu et al. 2023) for parts.
#pragma once

#include "kernels/array.h"

namespace ferry::kernels {

/// How the heads of one of queries, keys, values, outputs lie: the element `d` of head h of
/// sequence b at position s is at s · position + b · sequence + (h / heads_per_group) · group + (h
/// % heads_per_group) · head + d.
struct HeadStrides {
  int64_t position = 0, sequence = 0, group = 0, head = 0;
};

/// What is common to both passes. Queries stand at the positions [query_begin, query_begin +
/// queries) of their sequences, keys likewise: parts of a sequence that ranks share may be taken
/// two by two. A query sees keys at its own position and before, of its own document, inside the
/// window.
struct AttentionShape {
  int64_t sequences = 0;
  int64_t queries = 0, keys = 0;  // positions of each sequence
  int64_t query_begin = 0, key_begin = 0;
  int64_t heads = 0, groups = 0;   // query heads; heads of keys and values
  int64_t dim = 0, value_dim = 0;  // of a head
  double scale = 0;                // of scores, before the softmax
  int64_t window = 0;              // positions that a query sees, its own included; 0: all
  /// Position of the first token of the document that a query's token is of, [sequences, queries];
  /// null: documents see each other.
  const int32_t* document_begin = nullptr;
  int64_t document_stride = 0;  // elements from one sequence's to the next one's; 0: `queries`
  double dropout = 0;           // of probabilities
  uint64_t dropout_key = 0;  // random.h; element: ((sequence · heads + head) · Q + query) · K + key
  const int64_t* sequence_ids = nullptr;                         // for dropout: [sequences]
  int64_t first_head = 0, total_heads = 0, total_positions = 0;  // for dropout: of the whole model
};

/// output = softmax(scale · q · kᵀ + mask) · v, computed in fp32. A query that sees none of the
/// keys gets zeros, and -infinity for log_sum.
struct AttentionForward {
  AttentionShape shape;
  ConstArray q, k, v;
  HeadStrides q_strides, k_strides, v_strides;
  Array output;  // f32 where parts are to be merged
  HeadStrides output_strides;
  float* log_sum = nullptr;  // [sequences, heads, queries]: log of the sum of exponentials
};

/// Puts what two parts of the keys gave together: output, log_sum become those of both.
struct AttentionMerge {
  AttentionShape shape;  // sequences, queries, heads, value_dim
  const float* part = nullptr;
  const float* part_log_sum = nullptr;
  float* output = nullptr;  // both with output_strides
  HeadStrides output_strides;
  float* log_sum = nullptr;
};

/// Gradients. dq, dk and dv are added to when `accumulate`, else set; each group's dk and dv are
/// summed over its queries' heads by rising head, on a GPU by parts of the heads that follow from
/// sizes alone.
struct AttentionBackward {
  AttentionShape shape;
  ConstArray q, k, v, output, doutput;
  HeadStrides q_strides, k_strides, v_strides, output_strides;  // gradients lie as what they are of
  const float* log_sum = nullptr;                               // over all keys
  Array dq, dk, dv;
  bool accumulate = false;
};

// Rotary position embedding (Su et al. 2021), in place.

/// Turns pairs of elements of each head by the angle of the token's position. `cosine` and `sine`
/// have a row of dim / 2 elements for each of the `positions`; token i has row i /
/// tokens_per_position (tokens lie sequence first). The first `dim` elements of a head turn; the
/// rest stays.
struct Rotary {
  int64_t positions = 0, tokens_per_position = 1;
  int64_t heads = 0, dim = 0;
  int64_t token_stride = 0, group_stride = 0, head_stride = 0;  // in elements
  int64_t heads_per_group =
      1;  // head h begins at (h / heads_per_group) · group_stride + (h % ...) · head_stride
  /// Pairs are neighbours (2i, 2i + 1), and come out as (i, i + dim / 2): what multi-head latent
  /// attention does. Otherwise they are (i, i + dim / 2) before and after.
  bool interleaved = false;
  bool backward = false;  // the other way round
  const float* cosine = nullptr;
  const float* sine = nullptr;
  Array x;
};

}  // namespace ferry::kernels
