#include "convert/arguments/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/args.h"
#include "ckpt/megatron/model/attention_kinds.h"
#include "ckpt/megatron/model/hybrid_layers.h"
#include "ckpt/megatron/model/layer_spec.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "convert/arguments/argument_table.h"
#include "convert/arguments/unexpressed.h"
#include "convert/model/sizes.h"

namespace ferry {
namespace {

constexpr std::string_view kAuxLossCoefficients = "moe_aux_loss_coeff", kRotaryBase = "rotary_base";

class Reader {
 public:
  Reader(const Value& args, const std::string& path) : args_(args), path_(path) {}

  ReadArguments run() {
    if (args_.is_none()) {
      fail(ErrorKind::mismatch,
           "{}: holds no Megatron arguments, without which heads and rotary base are unknown; only "
           "what Megatron-LM or NeMo saved becomes a Hugging Face model ({} writes the tensors as "
           "they "
           "are)",
           path_, option("to", "safetensors"));
    }
    for (const Argument& argument : plain_arguments()) read(argument);
    const auto pattern = hybrid_pattern(args_);
    if (pattern) read_layers(*pattern);
    if (const LayerSpec* spec = layer_spec_of(args_)) spec->apply(a_);
    read_attention();
    read_indexers();
    read_positions();
    read_linear_attention();
    read_window();
    if (a_.window == 0) a_.windowed_rope_theta = 0;
    read_mlp();
    read_alternation();
    if (a_.experts > 0) read_moe();
    if (pattern) set_layers(*pattern, a_);
    a_.numbers_layers = !layers_are_stacked(args_);
    a_.tied = is("untie_embeddings_and_output_weights", false) ||
              is("share_embeddings_and_output_weights", true);
    if (is("mtp_use_repeated_layer", true) && a_.mtp_layers > 1) a_.mtp_layers = 1;
    check_sizes(a_, path_, "its Megatron arguments");
    find_unexpressed(args_, result_);
    return std::move(result_);
  }

 private:
  Value get(std::string_view name) const { return args_.get(name); }
  bool is(std::string_view name, bool value) const { return get(name).boolean() == value; }
  bool says(std::string_view name, std::string_view text) const {
    return get(name).string() == text;
  }

  void read_layers(const HybridPattern& pattern) {
    a_.layers = static_cast<int64_t>(pattern.decoder.size());
    a_.mtp_layers = pattern.mtp_layers;
    if (a_.mamba_heads == 0 && a_.mamba_head_dim > 0) {  // it expands the hidden size by 2
      a_.mamba_heads = 2 * std::clamp<int64_t>(a_.hidden, 0, kMaxModelSize) / a_.mamba_head_dim;
    }
    if (std::ranges::count(pattern.decoder, LayerKind::mixture) == 0 &&
        std::ranges::count(pattern.mtp, LayerKind::mixture) == 0) {
      a_.experts = 0;
    }
  }

  void read(const Argument& argument) {
    const Value value = get(argument.name);
    if (value.is_none()) return;
    if (value.kind() == ValueKind::list &&
        (argument.name == kAuxLossCoefficients || argument.name == kRotaryBase)) {
      return;  // read_moe(), read_positions_by_kind()
    }
    std::visit(
        [&](auto member) {
          using T = std::remove_reference_t<decltype(a_.*member)>;
          std::optional<T> read;
          if constexpr (std::is_same_v<T, int64_t>) {
            read = value.integer();
          } else if constexpr (std::is_same_v<T, double>) {
            read = value.real();
          } else {
            read = value.boolean();
          }
          if (read) {
            a_.*member = *read;
          } else {
            problem("argument {} is neither a number nor true or false", argument.name);
          }
        },
        argument.member);
  }

  void read_attention() {
    a_.groups = a_.heads;
    // Without group_query_attention the groups are printed, but not used.
    const Value grouped = get("group_query_attention");
    const std::optional<int64_t> groups = get("num_query_groups").integer();
    if (groups && !(args_.has("group_query_attention") && grouped.boolean() != true)) {
      a_.groups = *groups;
    }
    if (a_.head_dim == 0 && a_.heads > 0) a_.head_dim = a_.hidden / a_.heads;
    if (a_.full_head_dim == a_.head_dim) a_.full_head_dim = 0;
    if (a_.full_groups == a_.groups) a_.full_groups = 0;
    if (const auto scale = get("softmax_scale").real(); scale && *scale > 0) {
      // Almost always the root of a whole number.
      const double scalar = 1 / (*scale * *scale), whole = std::round(scalar);
      a_.attention_scalar = std::fabs(scalar - whole) < 1e-9 * scalar ? whole : scalar;
      if (a_.attention_scalar == static_cast<double>(a_.head_dim)) a_.attention_scalar = 0;
    }
    const auto norm = get("normalization").string().value_or("");
    a_.sinks = says("softmax_type", "learnable");
    a_.norm = args_.has("normalization") ? value_of(norm_words(), norm, Norm::rms) : Norm::layer;
    if (!norm.empty() && norm != word_of(norm_words(), a_.norm)) {
      problem("normalization is {}, which no Hugging Face family can express", norm);
    }
  }

  // A whole number n makes every n-th layer one of usual attention, a list those whose entry is 0.
  void read_linear_attention() {
    const Value freq = get("linear_attention_freq");
    const auto variant = get("experimental_attention_variant").string();
    if (!variant) {
      if (!freq.is_none()) {
        problem("linear_attention_freq is set without experimental_attention_variant");
      }
      return;
    }
    if (*variant == "dsa") return;  // read_indexers()
    if (*variant != "gated_delta_net") {
      return problem(
          "experimental_attention_variant is {}, which no Hugging Face family can express",
          *variant);
    }
    const bool is_list = freq.kind() == ValueKind::list;
    const int64_t every = std::max<int64_t>(1, freq.integer().value_or(1));
    for (int64_t layer = 0; layer < std::clamp<int64_t>(a_.layers, 0, kMaxLayers); ++layer) {
      const auto at = static_cast<size_t>(layer);
      a_.linear_layers.push_back(is_list ? at < freq.size() && freq[at].integer().value_or(0) != 0
                                         : (layer + 1) % every != 0);
    }
    if (is_list && static_cast<int64_t>(freq.size()) != a_.layers) {
      problem("linear_attention_freq has {} entries for {} layers", freq.size(), a_.layers);
    }
    if (freq.is_none()) problem("{} is set without linear_attention_freq", *variant);
  }

  void read_indexers() {
    a_.index_first = std::max<int64_t>(a_.index_first, 1);
    if (!says("experimental_attention_variant", "dsa")) {
      static_cast<IndexerSizes&>(a_) = {};
    } else if (a_.index_heads < 1 || a_.index_dim < 1 || a_.index_tokens < 1 ||
               a_.index_every < 1) {
      fail(ErrorKind::mismatch,
           "{}: its Megatron arguments lack a size of the indexers (dsa_indexer_n_heads, "
           "dsa_indexer_head_dim, dsa_indexer_topk, dsa_indexer_topk_freq), or it is not positive",
           path_);
    }
  }

  void read_positions() {
    const std::string_view kind =
        get("position_embedding_type").string().value_or(a_.mla ? "yarn" : "");
    a_.position_kind = value_of(position_words(), kind, Positions::other);
    if (is("use_rotary_position_embeddings", true)) a_.position_kind = Positions::rope;
    a_.rotary_fraction = get("rotary_percent").real().value_or(1);
    a_.rope_interleaved = is("rotary_interleaved", true);
    read_unrotated_layers();
    if (a_.mla) return read_latent_positions();
    if (kind == "yarn") return read_yarn();
    if (a_.scales_embedding) return read_positions_by_kind();
    if (const auto factor = get("rotary_seq_len_interpolation_factor").real();
        factor.value_or(1) != 1) {
      a_.rope_scaling = RopeScaling::linear;
      a_.rope_factor = *factor;
    }
    if (!is("use_rope_scaling", true)) return;
    if (a_.rope_scaling == RopeScaling::linear) {
      problem(
          "use_rope_scaling and rotary_seq_len_interpolation_factor together cannot be expressed");
    }
    const Llama3Constants fixed;
    a_.rope_scaling = RopeScaling::llama3;
    a_.rope_factor = get("rope_scaling_factor").real().value_or(8);
    a_.rope_low_freq_factor = get("low_freq_factor").real().value_or(fixed.low_freq_factor);
    a_.rope_high_freq_factor = get("high_freq_factor").real().value_or(fixed.high_freq_factor);
    a_.rope_original_positions =
        get("old_context_len").integer().value_or(fixed.original_positions);
  }

  // Gemma 3's, by the members that Megatron Bridge stores: the base of layers with a window and
  // that of the others, whose positions alone are scaled.
  void read_positions_by_kind() {
    const Value bases = get(kRotaryBase);
    if (bases.size() == 2) {
      a_.windowed_rope_theta = bases[0].real().value_or(a_.rope_theta);
      a_.rope_theta = bases[1].real().value_or(a_.rope_theta);
    }
    const double factor = get("rope_scaling_factor").real().value_or(1);
    if (factor == 1) return;
    a_.rope_scaling = RopeScaling::linear;
    a_.rope_factor = factor;
  }

  // A whole number n leaves out every n-th layer, a list those whose entry is 1.
  void read_unrotated_layers() {
    const Value freq = get("no_rope_freq");
    const int64_t every = freq.integer().value_or(0);
    const bool is_list = freq.kind() == ValueKind::list;
    if (!is_list && every <= 0) return;
    for (int64_t layer = 0; layer < std::min(a_.layers, kMaxLayers); ++layer) {
      const auto at = static_cast<size_t>(layer);
      a_.unrotated_layers.push_back(is_list ? at < freq.size() && freq[at].integer() == 1
                                            : (layer + 1) % every == 0);
    }
    if (is_list && static_cast<int64_t>(freq.size()) != a_.layers) {
      problem("no_rope_freq has {} entries for {} layers", freq.size(), a_.layers);
    }
    if (std::ranges::count(a_.unrotated_layers, true) == 0) a_.unrotated_layers.clear();
  }

  // By the arguments of Megatron-LM, or the members that Megatron Bridge stores.
  void read_yarn() {
    const auto either = [this](std::string_view name, std::string_view other, double otherwise) {
      return get(name).real().value_or(get(other).real().value_or(otherwise));
    };
    const YarnConstants usual;
    const double factor = either("yarn_rotary_scaling_factor", "rotary_scaling_factor", 1);
    if (factor == 1) return;
    a_.rope_scaling = RopeScaling::yarn;
    a_.rope_factor = factor;
    a_.rope_original_positions =
        get("yarn_original_max_position_embeddings").integer().value_or(usual.original_positions);
    a_.rope_beta_fast = get("yarn_beta_fast").real().value_or(usual.beta_fast);
    a_.rope_beta_slow = get("yarn_beta_slow").real().value_or(usual.beta_slow);
    a_.rope_mscale = either("yarn_mscale", "mscale", 1);
    a_.rope_mscale_all_dim = either("yarn_mscale_all_dim", "mscale_all_dim", 0);
    a_.rope_truncates = !is("yarn_correction_range_round_to_int", false);
  }

  // Latent attention scales by YaRN by default; a factor of 1 makes that plain RoPE.
  void read_latent_positions() {
    const double factor = get("rotary_scaling_factor").real().value_or(40);
    if (factor == 1) return;
    if (says("rope_type", "rope")) {
      if (get("mscale_all_dim").real().value_or(0) != 0) {
        problem(
            "rope_type is rope, yet mscale_all_dim with a rotary_scaling_factor of {} scales the "
            "attention: that cannot be expressed",
            factor);
      }
      return;
    }
    const YarnConstants fixed;
    a_.rope_scaling = RopeScaling::yarn;
    a_.rope_factor = factor;
    a_.rope_original_positions =
        get("original_max_position_embeddings").integer().value_or(fixed.original_positions);
    a_.rope_beta_fast = get("beta_fast").real().value_or(fixed.beta_fast);
    a_.rope_beta_slow = get("beta_slow").real().value_or(fixed.beta_slow);
    a_.rope_mscale = get("mscale").real().value_or(1);
    a_.rope_mscale_all_dim = get("mscale_all_dim").real().value_or(0);
  }

  // The pattern is two numbers, and every layer whose number their sum divides has no window.
  void read_window_in_turn(int64_t window) {
    std::vector<bool> windowed = windowed_layers(args_, a_.layers);
    if (window < 1 || window > kMaxModelSize || get("interleaved_attn_pattern").size() != 2 ||
        (windowed.empty() && a_.layers > 0)) {
      return problem("window_size is one number, and interleaved_attn_pattern not two");
    }
    if (std::ranges::count(windowed, true) == 0) return;
    a_.window = window;
    a_.windowed_layers = std::move(windowed);
  }

  void read_window() {
    const Value window = get("window_size");
    if (const auto size = window.integer()) return read_window_in_turn(*size);
    if (window.size() != 2) return;
    const int64_t left = window[0].integer().value_or(-1);
    if (left < 0 || left >= kMaxModelSize) return;
    a_.window = left + 1;
    const Value skip = get("window_attn_skip_freq");
    a_.windowed_layers = windowed_layers(args_, a_.layers);
    if (skip.kind() == ValueKind::list && static_cast<int64_t>(skip.size()) != a_.layers) {
      problem("window_attn_skip_freq has {} entries for {} layers", skip.size(), a_.layers);
    }
  }

  void read_mlp() {
    const auto flags = activation_flags();
    const auto flag = std::find_if(flags.begin(), flags.end(), [this](const ActivationFlag& each) {
      return is(each.name, true);
    });
    a_.activation = flag != flags.end() ? flag->activation : read_gelu();
    const int64_t hidden = std::clamp<int64_t>(a_.hidden, 0, kMaxModelSize);  // checked later
    if (a_.ffn == 0) a_.ffn = a_.gated() ? hidden * 4 * 2 / 3 / 64 * 64 : 4 * hidden;
  }

  void read_alternation() {
    const GluBlocks blocks = read_glu_blocks(args_);
    a_.dense_glu_block = blocks.dense;
    a_.expert_glu_block = blocks.experts;
    a_.shared_glu_block = blocks.shared;
    const auto ranks = [this](std::string_view name, int64_t otherwise) {
      return std::clamp<int64_t>(get(name).integer().value_or(otherwise), 1, kMaxHeads);
    };
    a_.glu_ranks = ranks("tensor_model_parallel_size", 1);
    a_.expert_glu_ranks = ranks("expert_tensor_parallel_size", a_.glu_ranks);
  }

  // Nor is a gated one of Megatron-LM's arguments: Megatron Bridge stores it so.
  Activation read_gelu() const {
    const Value function = get(kActivationFunction);
    const std::string_view name = function_name(function);
    if (is("gated_linear_unit", true)) {
      const bool tanh = name.ends_with("fast_gelu") || name.ends_with("openai_gelu");
      return tanh ? Activation::tanh_geglu : Activation::other;
    }
    // The fused bias and GELU kernel computes the tanh form; without biases it is never used.
    const bool fused = a_.linear_bias && is("bias_gelu_fusion", true);
    // Megatron Core ignores openai_gelu, the models before it and NeMo do not.
    const bool is_used = is("use_legacy_models", true) || args_.text().starts_with("nemo");
    const bool openai = is_used && is("openai_gelu", true);
    return fused || openai ? Activation::gelu_tanh : Activation::gelu;
  }

  void read_moe() {
    if (a_.expert_ffn == 0) a_.expert_ffn = a_.ffn;
    if (const auto score = get("moe_router_score_function").string()) {
      a_.router_score = value_of(score_words(), *score, RouterScore::other);
    }
    const Value freq = get("moe_layer_freq");
    const int64_t every = freq.integer().value_or(1);
    if (freq.kind() == ValueKind::list || freq.kind() == ValueKind::tuple) {
      for (size_t i = 0; i < freq.size(); ++i) {
        a_.moe_layers.push_back(freq[i].integer().value_or(0) != 0);
      }
      if (static_cast<int64_t>(freq.size()) != a_.layers) {
        problem("moe_layer_freq has {} entries for {} layers", freq.size(), a_.layers);
      }
    } else {
      for (int64_t n = 0; n < std::min(a_.layers, kMaxLayers); ++n) {
        a_.moe_layers.push_back(every <= 1 || n % every == 0);
      }
    }
    // One a kind of load balancing, in a list where there are several kinds.
    const Value coefficients = get(kAuxLossCoefficients);
    if (coefficients.size() == 0) return;
    a_.aux_loss_coeff = coefficients[0].real().value_or(0);
    if (coefficients.size() > 1) {
      warn("argument {} has {} values; the first is kept", kAuxLossCoefficients,
           coefficients.size());
    }
  }

  template <typename... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    result_.problems.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    result_.warnings.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  const Value& args_;
  const std::string& path_;
  ReadArguments result_;
  Architecture& a_ = result_.architecture;
};

}  // namespace

ReadArguments read_arguments(const Value& args, const std::string& path) {
  return Reader(args, path).run();
}

}  // namespace ferry
