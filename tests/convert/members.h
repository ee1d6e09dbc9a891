// Every member of Architecture by name, and other values for each: what tests go over so that none
// is lost in silence.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ckpt/megatron/model/architecture.h"

namespace ferry::test {

// As many parts as for_members() lists: a new base, or a member of Architecture's own, is one more
// that can be initialised, and then for_members() must list it.
template <typename T>
concept HasElevenParts = requires {
  T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
};
template <typename T>
concept HasTwelveParts = requires {
  T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
};
static_assert(HasElevenParts<Architecture> && !HasTwelveParts<Architecture>);

/// Calls act(name, member) for those of one part, whose names are in `names`, one after the other.
template <typename Act, typename... Members>
void for_named(std::string_view names, const Act& act, Members&... members) {
  const auto next = [&] {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(name.size() == names.size() ? names.size() : name.size() + 2);
    return name;
  };
  (act(next(), members), ...);
}

// A binding has exactly as many names as the part has members: a new member does not compile
// before it is named, in its place.
#define FERRY_MEMBERS(PART, ...)                 \
  {                                              \
    auto& [__VA_ARGS__] = static_cast<PART&>(a); \
    for_named(#__VA_ARGS__, act, __VA_ARGS__);   \
  }

/// Calls act(name, member) for every member of `a`, in an order that is always the same.
template <typename Act>
void for_members(Architecture& a, const Act& act) {
  FERRY_MEMBERS(ModelSizes, layers, hidden, positions, padded_vocab, vocab, tied, norm, norm_eps,
                zero_centered_norms, input_norms, output_norms, scales_embedding, norm_modules,
                scales_layers, logit_cap, linear_bias, init_std, hidden_dropout, mtp_layers,
                numbers_layers)
  FERRY_MEMBERS(AttentionSizes, heads, groups, head_dim, qkv_bias, qk_norm, norms_all_heads,
                output_gate, sinks, attention_scalar, attention_dropout, window, windowed_layers,
                norms_values, attention_by_kind, full_head_dim, full_groups, full_keys_are_values,
                kv_taking_layers)
  FERRY_MEMBERS(LatentAttentionSizes, mla, q_lora_rank, kv_lora_rank, qk_nope_dim, qk_rope_dim,
                v_dim)
  FERRY_MEMBERS(LinearAttentionSizes, linear_layers, linear_key_heads, linear_value_heads,
                linear_key_dim, linear_value_dim, linear_conv)
  FERRY_MEMBERS(HybridSizes, kinds, mtp_inner_layers, mamba_heads, mamba_head_dim, mamba_groups,
                mamba_state)
  FERRY_MEMBERS(IndexerSizes, index_heads, index_dim, index_tokens, index_every, index_first,
                index_rope_interleaved, index_norm_eps)
  FERRY_MEMBERS(PositionSettings, position_kind, rotary_fraction, rope_interleaved,
                unrotated_layers, rope_theta, windowed_rope_theta, full_rotated_pairs, rope_scaling,
                rope_factor, rope_low_freq_factor, rope_high_freq_factor, rope_original_positions,
                rope_beta_fast, rope_beta_slow, rope_mscale, rope_mscale_all_dim, rope_truncates)
  FERRY_MEMBERS(MlpSizes, ffn, activation, glu_clamp, glu_offset, doubles_ffn)
  FERRY_MEMBERS(MixtureSizes, experts, experts_per_token, expert_ffn, expert_width, shared_ffn,
                shared_gate, moe_layers, router_score, router_pre_softmax, expert_bias,
                router_scale, router_groups, router_groups_per_token, aux_loss_coeff, norms_parts)
  FERRY_MEMBERS(LayerEmbeddingSizes, layer_embedding, layer_embedding_vocab)
  FERRY_MEMBERS(GluRows, dense_glu_block, expert_glu_block, shared_glu_block, glu_ranks,
                expert_glu_ranks)
}
#undef FERRY_MEMBERS

inline std::vector<bool> others(bool value) { return {!value}; }
inline std::vector<int64_t> others(int64_t value) { return {value + 1, 2 * value, 0, 1, 2}; }
inline std::vector<double> others(double value) { return {value + 1, 2 * value, 0, 0.5}; }
inline std::vector<Norm> others(Norm) { return {Norm::rms, Norm::layer}; }
inline std::vector<Positions> others(Positions) {
  return {Positions::rope, Positions::learned, Positions::none};
}
inline std::vector<RopeScaling> others(RopeScaling) {
  return {RopeScaling::none, RopeScaling::linear, RopeScaling::llama3, RopeScaling::yarn};
}
inline std::vector<RouterScore> others(RouterScore) {
  return {RouterScore::softmax, RouterScore::sigmoid};
}
inline std::vector<Activation> others(Activation) {
  std::vector<Activation> all;
  for (auto each = Activation::swiglu; each != Activation::other;) {
    all.push_back(each);
    each = static_cast<Activation>(static_cast<uint8_t>(each) + 1);
  }
  return all;
}
/// The first and the last element changed; none.
template <typename T>
std::vector<std::vector<T>> others(const std::vector<T>& value) {
  const T yes = static_cast<T>(1), no = static_cast<T>(0);
  std::vector<std::vector<T>> all = {{}, value, value};
  if (value.empty()) {
    all = {{yes, no}, {no, yes}, {yes, yes}};
  } else {
    all[1].front() = value.front() == yes ? no : yes;
    all[2].back() = value.back() == yes ? no : yes;
  }
  return all;
}

/// Calls act(name, changed) for `a` with every other value of every member, one at a time.
template <typename Act>
void for_changes(const Architecture& a, const Act& act) {
  Architecture changed = a;
  for_members(changed, [&](std::string_view name, auto& member) {
    const auto value = member;
    for (const auto& other : others(value)) {
      if (other == value) continue;
      member = other;
      act(name, changed);
      member = value;
    }
  });
}

}  // namespace ferry::test
