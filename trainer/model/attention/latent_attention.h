// Multi-head latent attention: queries, keys and values are projected up from latents, and rotary
// positions apply to a part of queries and to one key that all heads share.
//
// Source: DeepSeek-AI 2024 (DeepSeek-V2); megatron/core/transformer/multi_latent_attention.py.
#pragma once

#include <string>

#include "ckpt/megatron/model/architecture.h"
#include "trainer/model/linear.h"
#include "trainer/model/norm.h"

namespace ferry {

class LatentAttention {
 public:
  struct Saved {
    kernels::Array query_latent, query_normed;  // [own rows, q_lora_rank]
    kernels::Array latent, latent_normed;       // [own rows, kv_lora_rank]
    NormLayer::Saved query_norm, norm;
    kernels::Array shared_key;  // rotated, shared by all heads: [rows, rope], if kept
    // These are not kept if they are recomputed.
    kernels::Array query;    // [rows, heads · (nope + rope)]
    kernels::Array key;      // likewise
    kernels::Array value;    // [rows, heads · (nope + v)]: unrotated keys, then values
    kernels::Array context;  // [rows, heads · v]
    float* log_sum = nullptr;
    Float8Input query_down_input, down_input, query_input, up_input, context_input;
  };

  LatentAttention(const ParameterSet& parameters, const std::string& prefix,
                  const Architecture& architecture, int64_t layer, int64_t tensor_ranks);

  Saved forward(Pass& pass, kernels::ConstArray x, kernels::Array y) const;
  void backward(Pass& pass, const Saved& kept, kernels::ConstArray x, kernels::ConstArray dy,
                kernels::Array dx) const;

 private:
  int64_t query_dim() const { return nope_ + rope_; }
  int64_t value_dim() const { return nope_ + v_; }
  kernels::HeadStrides strides(const Pass& pass, int64_t dim) const {
    return {pass.sequences * heads_ * dim, heads_ * dim, dim, 0};
  }
  kernels::AttentionShape shape(const Pass& pass) const;
  void apply_rope(Pass& pass, kernels::Array x, int64_t heads, int64_t head_stride,
                  bool backward) const;
  kernels::Array normed(Pass& pass, const NormLayer& norm, int64_t width, kernels::Array latent,
                        NormLayer::Saved& saved) const;
  void compress(Pass& pass, kernels::ConstArray x, Saved& saved) const;
  void expand(Pass& pass, Arena& arena, kernels::ConstArray x, Saved& saved) const;
  void queries_backward(Pass& pass, const Saved& saved, kernels::ConstArray x,
                        kernels::ConstArray dquery, kernels::Array dx) const;
  void keys_and_values_backward(Pass& pass, const Saved& saved, kernels::ConstArray x,
                                kernels::ConstArray dkey, kernels::Array dvalue,
                                kernels::Array dx) const;

  ReplicatedLinear query_down_, down_;
  ColumnLinear query_, up_;
  RowLinear output_;
  NormLayer query_norm_, norm_;
  int64_t layer_ = 0, hidden_ = 0, heads_ = 0, q_lora_ = 0, lora_ = 0, nope_ = 0, rope_ = 0, v_ = 0;
  double scale_ = 0;
  bool has_norms_ = true;  // of the latents
};

}  // namespace ferry
