// Self-attention with grouped queries, between a column- and a row-parallel linear.
#pragma once

#include <string>

#include "ckpt/megatron/model/architecture.h"
#include "trainer/model/linear.h"
#include "trainer/model/norm.h"

namespace ferry {

class Attention {
 public:
  struct Saved {
    kernels::Array fused;    // [rows, groups · (queries of a group + 2) · head_dim]
    kernels::Array rotated;  // the same with queries and keys normalized and rotated
    kernels::Array context;  // [rows, heads · head_dim]
    float* log_sum = nullptr;
    Float8Input input, context_input;
    NormLayer::Saved query_norm, key_norm;
  };

  /// For layer `layer` of the model; `prefix` is "decoder.layers.<layer>.self_attention".
  Attention(const ParameterSet& parameters, const std::string& prefix,
            const Architecture& architecture, int64_t layer, int64_t tensor_ranks);

  /// y = attention(x); both [own rows, hidden].
  Saved forward(Pass& pass, kernels::ConstArray x, kernels::Array y) const;
  /// Whether the backward pass does not need x.
  bool keeps_input(const Pass& pass) const {
    return !pass.recompute.norms && input_.can_keep(pass);
  }
  void backward(Pass& pass, const Saved& saved, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx) const;

 private:
  // The offsets of queries, keys and values in a row of the fused projection.
  struct Part {
    int64_t first, heads;  // element of the first head; heads of a group
  };
  Part queries() const { return {0, group_heads_}; }
  Part keys() const { return {group_heads_ * dim_, 1}; }
  Part values() const { return {(group_heads_ + 1) * dim_, 1}; }
  int64_t group_width() const { return (group_heads_ + 2) * dim_; }
  int64_t width() const { return groups_ * group_width(); }
  int64_t heads() const { return groups_ * group_heads_; }

  NormRows rows_of(const Pass& pass, const Part& part) const;
  kernels::HeadStrides strides(const Pass& pass) const;
  kernels::HeadStrides context_strides(const Pass& pass) const;
  kernels::AttentionShape shape(const Pass& pass) const;
  void apply_rope(Pass& pass, kernels::Array fused, const Part& part, bool backward) const;

  ColumnLinear input_;
  RowLinear output_;
  NormLayer query_norm_, key_norm_;
  Parameter sinks_;                // a score of no key for each head
  bool rope_interleaved_ = false;  // pairs of elements next to each other are rotated
  int64_t layer_ = 0, groups_ = 0, group_heads_ = 0, dim_ = 0, window_ = 0, rotary_dim_ = 0;
  double scale_ = 0;
};

}  // namespace ferry
