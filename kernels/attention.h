// Scaled dot-product attention with grouped queries, without a matrix of scores in memory.
//
// Source: FlashAttention-2 (Dao 2023) for the passes; Ring Attention (Liu et al. 2023) for merging
// parts.
#pragma once

#include "kernels/array.h"

namespace ferry::kernels {

/// The layout of queries, keys, values or outputs: element `d` of head h of sequence b at position
/// s is at s · position + b · sequence + (h / heads_per_group) · group + (h % heads_per_group) ·
/// head + d.
struct HeadStrides {
  int64_t position = 0, sequence = 0, group = 0, head = 0;
};

/// Common to both passes. Queries are at positions [query_begin, query_begin + queries) of their
/// sequences, keys likewise, so that pairs of parts of a sequence can be processed. A query attends
/// to keys up to its own position, in its own document, and inside the window.
struct AttentionShape {
  int64_t sequences = 0;
  int64_t queries = 0, keys = 0;  // positions per sequence
  int64_t query_begin = 0, key_begin = 0;
  int64_t heads = 0, groups = 0;   // query heads; key and value heads
  int64_t dim = 0, value_dim = 0;  // per head
  double scale = 0;                // factor of scores before the softmax
  int64_t window = 0;              // positions visible to a query, including its own; 0: all
  /// Position of the first token of each query's document, [sequences, queries]; null: attention
  /// crosses documents.
  const int32_t* document_begin = nullptr;
  int64_t document_stride = 0;  // stride between sequences; 0: `queries`
  double dropout = 0;           // probability of dropping attention weights
  uint64_t dropout_key = 0;  // random.h; element: ((sequence · heads + head) · Q + query) · K + key
  const int64_t* sequence_ids = nullptr;                         // for dropout: [sequences]
  int64_t first_head = 0, total_heads = 0, total_positions = 0;  // for dropout: in the whole model
};

/// output = softmax(scale · q · kᵀ + mask) · v, computed in fp32. A query without visible keys gets
/// zeros, and -infinity for log_sum.
struct AttentionForward {
  AttentionShape shape;
  ConstArray q, k, v;
  HeadStrides q_strides, k_strides, v_strides;
  Array output;  // f32 if parts will be merged
  HeadStrides output_strides;
  float* log_sum = nullptr;  // [sequences, heads, queries]: log of the sum of exponentials
};

/// Merges the results of two parts of the keys: output and log_sum become those of both.
struct AttentionMerge {
  AttentionShape shape;  // sequences, queries, heads, value_dim
  const float* part = nullptr;
  const float* part_log_sum = nullptr;
  float* output = nullptr;  // both with output_strides
  HeadStrides output_strides;
  float* log_sum = nullptr;
};

/// A learned score for each head, of no key, takes part in the softmax: scales the output of all
/// keys, and log_sum becomes that with the score. AttentionBackward takes both as they are then.
struct AttentionSink {
  AttentionShape shape;  // sequences, queries, heads, groups, value_dim
  ConstArray score;      // [heads]
  Array output;
  HeadStrides output_strides;
  float* log_sum = nullptr;
};

/// The scores' gradient, from what AttentionSink left, summed in a fixed order.
struct AttentionSinkGradient {
  AttentionShape shape;
  ConstArray score, output, doutput;
  HeadStrides output_strides;
  const float* log_sum = nullptr;
  Gradient dscore;
};

/// Gradients. Adds to dq, dk and dv if `accumulate`, otherwise sets them. Each group's dk and dv
/// are summed over its query heads in ascending order, on a GPU by parts that depend only on sizes.
struct AttentionBackward {
  AttentionShape shape;
  ConstArray q, k, v, output, doutput;
  HeadStrides q_strides, k_strides, v_strides,
      output_strides;              // gradients have the strides of their arrays
  const float* log_sum = nullptr;  // over all keys
  Array dq, dk, dv;
  bool accumulate = false;
};

// Rotary position embedding (Su et al. 2021), in place.

/// Rotates pairs of elements of each head by the angle of the token's position. `cosine` and `sine`
/// have a row of dim / 2 elements for each of the `positions`; token i has row i /
/// tokens_per_position (tokens are sequence first). Rotates the first `dim` elements of a head and
/// leaves the rest unchanged.
struct Rotary {
  int64_t positions = 0, tokens_per_position = 1;
  int64_t heads = 0, dim = 0;
  int64_t token_stride = 0, group_stride = 0, head_stride = 0;  // in elements
  int64_t heads_per_group =
      1;  // head h begins at (h / heads_per_group) · group_stride + (h % ...) · head_stride
  /// Input pairs are (2i, 2i + 1) and output pairs (i, i + dim / 2), as in multi-head latent
  /// attention. Otherwise pairs are (i, i + dim / 2) before and after.
  bool interleaved = false;
  bool backward = false;  // inverse rotation and order
  const float* cosine = nullptr;
  const float* sine = nullptr;
  Array x;
};

}  // namespace ferry::kernels
