#include "convert/unread_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "convert/config_json.h"
#include "convert/config_value.h"

namespace ferry {
namespace {

using nlohmann::json;
using A = Architecture;

constexpr double kSameNumber = 1e-6;  // relative

// Names that never change what a decoder computes from given tokens, whatever their values.
constexpr std::string_view kHarmless[] = {
    // of the file and of the program that loads it
    "_attn_implementation_autoset", "_attn_implementation_internal", "_commit_hash",
    "_flash_attn_2_enabled", "_from_model_config", "_name_or_path", "architectures",
    "attn_implementation", "_attn_implementation", "auto_map", "dtype", "finetuning_task", "fp32",
    "bf16", "fp16", "gradient_checkpointing", "id2label", "label2id", "model_type", "name_or_path",
    "num_labels", "output_attentions", "output_hidden_states", "output_router_logits",
    "pretraining_tp", "problem_type", "quantization_config", "return_dict", "task_specific_params",
    "tie_encoder_decoder", "torch_dtype", "torchscript", "transformers_version", "unsloth_fixed",
    "unsloth_version", "use_bfloat16", "use_cache", "use_flash_attn", "chunk_size_feed_forward",
    "ep_size", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "classifier_dropout", "num_logits_to_keep",
    "reorder_and_upcast_attn",
    // of Mamba mixers: how they are computed, and what training starts from
    "chunk_size", "expand", "mamba_ssm_cache_dtype", "moe_shared_expert_overlap",
    "rescale_prenorm_residual", "time_step_floor", "time_step_limit", "time_step_max",
    "time_step_min", "use_mamba_kernels",
    // derived by transformers from layer_types
    "_sliding_window_pattern",
    // of positions in pictures: a token's are the same along all three axes
    "mrope_interleaved", "mrope_section",
    // of tokens
    "bos_token", "bos_token_id", "decoder_start_token_id", "eos_token", "eos_token_id", "pad_token",
    "pad_token_id", "sep_token_id", "unk_token_id", "model_max_length", "max_sequence_length",
    "tokenizer_class",
    // of training
    "attention_dropout", "attn_pdrop", "aux_loss_alpha", "embd_pdrop", "embedding_dropout",
    "embedding_initializer_range", "hidden_dropout", "hidden_dropout_prob", "initializer_range",
    "mtp_loss_scaling_factor", "resid_pdrop", "residual_dropout", "router_aux_loss_coef",
    "router_jitter_noise", "router_z_loss_coef", "seq_aux", "z_loss_coefficient",
    // of sampling
    "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id",
    "forced_eos_token_id", "length_penalty", "max_length", "max_new_tokens", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_scores",
    "prefix", "remove_invalid_values", "repetition_penalty", "return_dict_in_generate",
    "suppress_tokens", "temperature", "tf_legacy_loss", "top_k", "top_p", "typical_p"};

// Members of rope_parameters that read_config compares.
constexpr std::string_view kRopeKnown[] = {"attention_factor",
                                           "beta_fast",
                                           "beta_slow",
                                           "factor",
                                           "finetuned",
                                           "high_freq_factor",
                                           "low_freq_factor",
                                           "mscale",
                                           "mscale_all_dim",
                                           "original_max_position_embeddings",
                                           "partial_rotary_factor",
                                           "rope_theta",
                                           "rope_type",
                                           "truncate",
                                           "type"};

bool is(const json& value, double number) {
  return value.is_number() &&
         std::fabs(value.get<double>() - number) <= kSameNumber * std::fabs(number);
}

// The kinds of all layers, one name each.
template <typename Kind>
bool are_kinds(const json& value, const A& a, Kind kind) {
  if (!value.is_array() || static_cast<int64_t>(value.size()) != a.layers) return false;
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    if (value[static_cast<size_t>(layer)] != kind(layer)) return false;
  }
  return true;
}

bool same_attention(const A& a, const json&, const json& value) {
  return are_kinds(value, a, [&](int64_t layer) {
    return a.has_window(layer) ? "sliding_attention" : "full_attention";
  });
}
bool same_experts(const A& a, const json&, const json& value) {
  return are_kinds(value, a, [&](int64_t layer) { return a.is_moe(layer) ? "sparse" : "dense"; });
}
bool rotates_all(const A& a, const json&, const json& value) {
  return are_kinds(value, a, [](int64_t) { return 1; });
}
bool all_layers_listed(const A& a, const json& config, const json&) {
  return rotates_all(a, config, config.value("no_rope_layers", json()));
}

// A window that no layer has.
bool no_window(const A& a, const json& config, const json& value) {
  if (a.window > 0) return is(value, static_cast<double>(a.window));
  const auto used = config.find("use_sliding_window");
  const auto kinds = config.find("layer_types");
  return (used != config.end() && *used == false) ||
         (kinds != config.end() && same_attention(a, config, *kinds));
}
bool no_windowed_layers(const A& a, const json& config, const json& value) {
  const auto window = config.find("sliding_window");
  return window == config.end() || window->is_null() || no_window(a, config, *window) ||
         (a.window == 0 && is(value, static_cast<double>(a.layers)));
}

bool is_one(const A&, const json&, const json& value) { return is(value, 1); }
bool is_zero(const A&, const json&, const json& value) { return is(value, 0); }
bool is_false(const A&, const json&, const json& value) { return value == false; }
bool is_true(const A&, const json&, const json& value) { return value == true; }
bool is_empty(const A&, const json&, const json& value) { return value.empty(); }
bool has_linear_bias(const A& a, const json&, const json& value) { return value == a.linear_bias; }
bool has_qkv_bias(const A& a, const json&, const json& value) {
  return value == (a.qkv_bias || a.linear_bias);
}
bool has_qk_norm(const A& a, const json&, const json& value) { return value == a.qk_norm; }
bool has_epsilon(const A& a, const json&, const json& value) { return is(value, a.norm_eps); }
bool is_head(const A& a, const json&, const json& value) {
  return is(value, static_cast<double>(a.head_dim));
}
bool is_latent_head(const A& a, const json& config, const json& value) {
  return a.mla ? is(value, static_cast<double>(a.qk_nope_dim + a.qk_rope_dim))
               : is_head(a, config, value);
}
// The one that MLA's class computes from its other sizes, or an older one of the part that rotates.
bool is_any_latent_head(const A& a, const json& config, const json& value) {
  return a.mla ? is(value, static_cast<double>(a.qk_rope_dim)) || is_latent_head(a, config, value)
               : is_head(a, config, value);
}
bool is_attention_scale(const A& a, const json&, const json& value) {
  return !a.mla && is(value, 1 / std::sqrt(static_cast<double>(a.head_dim)));
}
bool has_window(const A& a, const json&, const json& value) { return value == (a.window > 0); }

// Members that change nothing with the value that says what the architecture has already.
struct Neutral {
  std::string_view name;
  bool (*is)(const A&, const json& config, const json& value);
};
constexpr Neutral kNeutral[] = {
    {"add_cross_attention", is_false},
    {"attention_bias", has_qkv_bias},
    {"attention_in_multiplier", is_one},
    {"attention_multiplier", is_attention_scale},
    {"attention_out_bias", has_linear_bias},
    {"attention_out_multiplier", is_one},
    {"bias", has_linear_bias},
    {"cross_attention_hidden_size", is_zero},
    {"embedding_multiplier", is_one},
    {"head_dim", is_any_latent_head},
    {"is_causal", is_true},
    {"is_decoder", is_true},
    {"is_encoder_decoder", is_false},
    {"key_multiplier", is_one},
    {"layer_norm_eps", has_epsilon},
    {"layer_norm_epsilon", has_epsilon},
    {"layer_types", same_attention},
    {"lm_head_bias", is_false},
    {"lm_head_multiplier", is_one},
    {"logit_scale", is_one},
    {"logits_scaling", is_one},
    {"max_window_layers", no_windowed_layers},
    {"mlp_bias", has_linear_bias},
    {"mlp_layer_types", same_experts},
    {"moe_layer_freq", is_one},
    {"mup_enabled", is_false},
    {"n_routed_experts", is_zero},
    {"no_rope_layer_interval", all_layers_listed},
    {"no_rope_layers", rotates_all},
    {"norm_eps", has_epsilon},
    {"num_experts", is_zero},
    {"num_local_experts", is_zero},
    {"num_nextn_predict_layers", is_zero},
    {"parallel_attn", is_false},
    {"pruned_heads", is_empty},
    {"qk_head_dim", is_latent_head},
    {"qk_layernorm", has_qk_norm},
    {"qkv_bias", has_qkv_bias},
    {"query_pre_attn_scalar", is_head},
    {"residual_multiplier", is_one},
    {"rope_interleave", is_false},
    {"rope_interleaved", is_false},
    {"llama_4_scaling_beta", is_zero},
    {"rotary_dim", is_head},
    {"rotary_pct", is_one},
    {"rotary_percent", is_one},
    {"scale_attn_by_inverse_layer_idx", is_false},
    {"scale_attn_weights", is_true},
    {"scale_emb", is_one},
    {"scale_embedding", is_false},
    {"sliding_window", no_window},
    {"use_bias", has_linear_bias},
    {"use_bidirectional_attention", is_false},
    {"use_mrope", is_false},
    {"use_mup", is_false},
    {"use_parallel_residual", is_false},
    {"use_qk_norm", has_qk_norm},
    {"use_qkv_bias", has_qkv_bias},
    {"use_sliding_window", has_window},
};

class MemberJudge {
 public:
  MemberJudge(const Family& family, const A& a, const json& config)
      : family_(family), a_(a), config_(config), defaults_(json::parse(family.defaults)) {}

  // `within`: "rope_parameters." of a member of that.
  void judge(const std::string& name, const json& value, const std::string& within = "") {
    if (value.is_null() || has_name(kHarmless, name)) return;
    const auto* found = std::find_if(std::begin(kNeutral), std::end(kNeutral),
                                     [&](const Neutral& each) { return each.name == name; });
    if (found != std::end(kNeutral) && found->is(a_, config_, value)) return;
    members.push_back({within + name, shown(value)});
  }

  bool is_read(std::string_view key) const {
    return defaults_.contains(key) || family_.has_member(key);
  }

  void judge_rope() {
    const auto holds = [&](std::string_view key) {
      const auto found = config_.find(std::string(key));
      return found != config_.end() && found->is_object() && !found->empty();
    };
    const std::string within = holds("rope_scaling") ? "rope_scaling." : "rope_parameters.";
    judge_parameters(rope_scaling_of(config_), within);
  }

  std::vector<UnreadMember> members;

 private:
  // Parameters of all layers, or of each kind of layer where the family has them by kind.
  void judge_parameters(const json& parameters, const std::string& within) {
    const bool by_kind =
        family_.has_member("rope_local_base_freq") || family_.has_member("per_layer_config");
    for (const auto& [name, value] : parameters.items()) {
      if (by_kind && value.is_object()) {
        judge_parameters(value, within + name + ".");
      } else if (!has_name(kRopeKnown, name)) {
        judge(name, value, within);
      }
    }
  }

  const Family& family_;
  const A& a_;
  const json& config_;
  const json defaults_;
};

}  // namespace

std::vector<UnreadMember> unread_members(const Family& family, const Architecture& architecture,
                                         const json& config) {
  MemberJudge reader(family, architecture, config);
  const bool rotary = family.has_member("rope_parameters");
  for (const auto& [key, value] : config.items()) {
    if (!reader.is_read(key)) reader.judge(key, value);
  }
  if (rotary) reader.judge_rope();
  return std::move(reader.members);
}

std::vector<std::string> remove_members(const std::vector<std::string>& names,
                                        const std::string& path, json& config) {
  std::vector<std::string> warnings;
  for (const std::string& name : names) {
    const size_t dot = config.contains(name) ? std::string::npos : name.find('.');
    const std::string key = dot == std::string::npos ? name : name.substr(dot + 1);
    json* holder = &config;
    if (dot != std::string::npos) {
      const auto outer = config.find(name.substr(0, dot));
      holder = outer != config.end() && outer->is_object() ? &*outer : nullptr;
    }
    if (holder == nullptr || !holder->contains(key)) {
      fail(ErrorKind::invalid, "{}: has no member {}, which {} names", path, name,
           option("ignored_members"));
    }
    warnings.push_back(fmt::format("config.json's {} ({}) is ignored: {} names it", name,
                                   shown((*holder)[key]), option("ignored_members")));
    holder->erase(key);
  }
  return warnings;
}

}  // namespace ferry
