#include "convert/model/sizes.h"

#include <string_view>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kMaxExpertsOfAllLayers = 250'000;

}  // namespace

void check_sizes(const Architecture& a, const std::string& path, const std::string& source) {
  const auto require = [&](std::string_view name, int64_t value, int64_t limit) {
    if (value < 1) {
      fail(ErrorKind::mismatch, "{}: {} lack the number of {}, or it is {}", path, source, name,
           value);
    }
    if (value > limit) {
      fail(ErrorKind::mismatch,
           "{}: {} say that the number of {} is {}, more than the {} that are "
           "supported",
           path, source, name, value, limit);
    }
  };
  require("layers (num_layers, num_hidden_layers)", a.layers, kMaxLayers);
  require("elements of a token (hidden_size)", a.hidden, kMaxModelSize);
  require("attention heads (num_attention_heads)", a.heads, kMaxHeads);
  require("query groups (num_query_groups, num_key_value_heads)", a.groups, kMaxHeads);
  require("elements of a head (kv_channels, head_dim)", a.head_dim, kMaxHeads);
  if (a.any_linear()) {
    require("key heads (linear_num_key_heads)", a.linear_key_heads, kMaxHeads);
    require("value heads (linear_num_value_heads)", a.linear_value_heads, kMaxHeads);
    require("elements of a key head (linear_key_head_dim)", a.linear_key_dim, kMaxHeads);
    require("elements of a value head (linear_value_head_dim)", a.linear_value_dim, kMaxHeads);
    require("tokens of a convolution (linear_conv_kernel_dim)", a.linear_conv, kMaxHeads);
    if (a.linear_value_heads % a.linear_key_heads != 0) {
      fail(ErrorKind::mismatch,
           "{}: {} value heads of linear attention do not divide into {} key heads", path,
           a.linear_value_heads, a.linear_key_heads);
    }
  }
  if (a.any_mamba()) {
    require("heads of Mamba mixers (mamba_num_heads)", a.mamba_heads, kMaxHeads);
    require("elements of their heads (mamba_head_dim)", a.mamba_head_dim, kMaxHeads);
    require("groups of their heads (mamba_num_groups)", a.mamba_groups, kMaxHeads);
    require("elements of their states (mamba_state_dim)", a.mamba_state, kMaxHeads);
    if (a.mamba_heads % a.mamba_groups != 0) {
      fail(ErrorKind::mismatch, "{}: {} heads of Mamba mixers do not divide into {} groups", path,
           a.mamba_heads, a.mamba_groups);
    }
  }
  if (a.mtp_layers != 0) require("prediction layers (mtp_num_layers)", a.mtp_layers, kMaxLayers);
  require("elements inside an MLP (ffn_hidden_size, intermediate_size)", a.ffn, kMaxModelSize);
  if (a.heads % a.groups != 0) {
    fail(ErrorKind::mismatch, "{}: {} attention heads do not divide into {} query groups", path,
         a.heads, a.groups);
  }
  if (a.full_groups < 0 || (a.full_groups > 0 && a.heads % a.full_groups != 0)) {
    fail(ErrorKind::mismatch,
         "{}: {} attention heads do not divide into {} query groups of layers without a window",
         path, a.heads, a.full_groups);
  }
  if (a.full_head_dim < 0 || a.full_head_dim > kMaxHeads) {
    fail(ErrorKind::mismatch, "{}: {} hold the impossible size of a head {}", path, source,
         a.full_head_dim);
  }
  const int64_t other[] = {a.positions,         a.padded_vocab,    a.vocab,
                           a.q_lora_rank,       a.kv_lora_rank,    a.qk_nope_dim,
                           a.qk_rope_dim,       a.v_dim,           a.experts,
                           a.expert_ffn,        a.expert_width,    a.shared_ffn,
                           a.experts_per_token, a.router_groups,   a.router_groups_per_token,
                           a.kv_taking_layers,  a.layer_embedding, a.layer_embedding_vocab};
  for (int64_t value : other) {
    if (value < 0 || value > kMaxModelSize) {
      fail(ErrorKind::mismatch, "{}: {} hold the impossible size {}", path, source, value);
    }
  }
  if (a.experts == 0) return;
  require("experts (num_experts)", a.experts, kMaxExperts);
  if (a.all_layers() > 2 * kMaxLayers || a.experts * a.all_layers() > kMaxExpertsOfAllLayers) {
    fail(ErrorKind::mismatch, "{}: {} layers of {} experts are more than is supported", path,
         a.layers, a.experts);
  }
}

}  // namespace ferry
