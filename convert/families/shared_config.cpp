#include <fmt/format.h>

#include <utility>

#include "convert/families/shared.h"

namespace ferry::shared {

using A = Architecture;
namespace {
constexpr double kIndexNormEpsilon = 1e-6;
}  // namespace

std::vector<ConfigRow> llama_config_without_rope(std::optional<Activation> activation) {
  std::vector<ConfigRow> rows = {codec::plain("vocab_size", &A::vocab),
                                 codec::plain("hidden_size", &A::hidden),
                                 codec::plain("intermediate_size", &A::ffn),
                                 codec::plain("num_hidden_layers", &A::layers),
                                 codec::plain("num_attention_heads", &A::heads),
                                 codec::or_null(codec::plain("num_key_value_heads", &A::groups)),
                                 codec::plain("max_position_embeddings", &A::positions),
                                 codec::plain("rms_norm_eps", &A::norm_eps),
                                 codec::plain("initializer_range", &A::init_std),
                                 codec::plain("attention_dropout", &A::attention_dropout),
                                 codec::plain("tie_word_embeddings", &A::tied)};
  if (activation) rows.push_back(codec::activation({*activation}));
  return rows;
}

std::vector<ConfigRow> llama_config(std::optional<Activation> activation) {
  return join({llama_config_without_rope(activation), {codec::rope()}});
}

std::vector<ConfigRow> latent_config() {
  return {codec::implied(&A::mla, true),
          codec::implied(&A::qk_norm, true),
          codec::constant("attention_bias", false),
          codec::heads_for_groups(),
          codec::null_at_zero("q_lora_rank", &A::q_lora_rank),
          codec::plain("kv_lora_rank", &A::kv_lora_rank),
          codec::plain("qk_nope_head_dim", &A::qk_nope_dim),
          codec::plain("qk_rope_head_dim", &A::qk_rope_dim),
          codec::plain("v_head_dim", &A::v_dim)};
}

// The class compresses queries, and norms keys with an epsilon of its own.
std::vector<ConfigRow> indexer_config() {
  ConfigRow heads = codec::plain("index_n_heads", &A::index_heads);
  heads.unsupported = [](const A& a, std::string_view family, std::vector<std::string>& reasons) {
    if (a.q_lora_rank > 0) return;
    reasons.push_back(fmt::format(
        "the model lacks compressed queries (q_lora_rank), {} always has those", family));
  };
  return {std::move(heads), codec::plain("index_head_dim", &A::index_dim),
          codec::plain("index_topk", &A::index_tokens),
          codec::implied(&A::index_norm_eps, kIndexNormEpsilon)};
}

std::vector<ConfigRow> mixture_config() {
  return {codec::plain("moe_intermediate_size", &A::expert_ffn),
          codec::plain("n_routed_experts", &A::experts),
          codec::plain("num_experts_per_tok", &A::experts_per_token),
          codec::first_dense_layers("n_routed_experts"),
          codec::shared_expert_count(),
          codec::one_at_zero("routed_scaling_factor", &A::router_scale),
          codec::router_groups()};
}

void warn_of_latent_norms(const Architecture& a, std::vector<std::string>& warnings) {
  if (a.norm_eps == 1e-6) return;
  warnings.push_back(fmt::format(
      "layernorm_epsilon is {}, but transformers fixes that of q_a_layernorm and kv_a_layernorm "
      "at 1e-06: logits will differ slightly",
      a.norm_eps));
}

void warn_of_output_norms(const Architecture& a, std::vector<std::string>& warnings) {
  constexpr double kFixed = 1e-5;
  if (a.norm_eps == kFixed || !a.output_norms || a.norm_modules) return;
  warnings.push_back(fmt::format(
      "the epsilon of norms is {}, but Megatron Bridge fixes that of norms of what {} "
      "at {}: logits will differ slightly",
      a.norm_eps, a.norms_parts ? "attention gives" : "attention and MLP give", kFixed));
}

void warn_of_index_norm(const Architecture& a, std::vector<std::string>& warnings) {
  const double epsilon = a.index_norm_eps == 0 ? a.norm_eps : a.index_norm_eps;
  if (epsilon == kIndexNormEpsilon) return;
  warnings.push_back(fmt::format(
      "the epsilon of the norm of an indexer's keys is {}, but transformers fixes it at {}: some "
      "tokens may attend to others",
      epsilon, kIndexNormEpsilon));
}

void warn_of_groups(const Architecture& a, const GroupRank& rank,
                    std::vector<std::string>& warnings) {
  if (!a.limits_groups()) return;
  const int64_t scores = a.experts_per_token / a.router_groups_per_token;
  if (scores == rank.scores) return;
  warnings.push_back(fmt::format(
      "Megatron ranks groups of experts by the sum of their {} best scores, {} by {}: some tokens "
      "will go to other experts",
      scores, rank.family, rank.words));
}

}  // namespace ferry::shared
