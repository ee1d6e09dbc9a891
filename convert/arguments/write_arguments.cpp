#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ckpt/megatron/model/hybrid_layers.h"
#include "ckpt/megatron/model/layer_spec.h"
#include "convert/arguments/argument_table.h"
#include "convert/arguments/arguments.h"

namespace ferry {
namespace {

bool is_whole(double number) { return std::trunc(number) == number && std::fabs(number) < 1e15; }

using A = Architecture;

class Writer {
 public:
  Writer(const Architecture& architecture, Draft& draft, const Value& args)
      : a_(architecture), draft_(draft), args_(args) {}

  WrittenArguments run() {
    for (const Argument& argument : plain_arguments()) {
      if (has_argument(argument.of, a_)) write(argument);
    }
    if (!a_.attention_by_kind) check_kinds();
    write_attention();
    write_layer_spec();
    write_linear_attention();
    if (a_.index_heads > 0) write_indexers();
    if (a_.is_hybrid()) write_hybrid();
    write_positions();
    write_window();
    write_activation();
    if (a_.experts > 0) write_moe();
    put("untie_embeddings_and_output_weights", !a_.tied);
    put("mtp_use_repeated_layer", false);
    put("transformer_impl", "transformer_engine");
    return std::move(written_);
  }

 private:
  void put(std::string_view name, const Value& value) { draft_.put(args_, name, value); }
  void put(std::string_view name, bool value) { put(name, draft_.boolean(value)); }
  void put(std::string_view name, int64_t value) { put(name, draft_.integer(value)); }
  void put(std::string_view name, double value) { put(name, draft_.real(value)); }
  void put(std::string_view name, std::string_view word) { put(name, draft_.string(word)); }
  void put(std::string_view name, const char* word) { put(name, std::string_view(word)); }
  void put(std::string_view name, const std::vector<bool>& flags) {
    std::vector<Value> items;
    for (const bool flag : flags) items.push_back(draft_.integer(flag ? 1 : 0));
    put(name, draft_.list(items));
  }

  template <typename... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    written_.problems.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    written_.flags.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void write(const Argument& argument) {
    std::visit(
        [&](auto member) {
          using T = std::remove_cvref_t<decltype(a_.*member)>;
          const T value = a_.*member, usual = Architecture().*member;
          if (argument.form == ArgumentForm::none_at_zero && value == T()) {
            put(argument.name, draft_.none());
          } else if (argument.form == ArgumentForm::whole && is_whole(value)) {
            put(argument.name, static_cast<int64_t>(value));
          } else {
            put(argument.name, value);
          }
          if (argument.flag.empty() || value == usual) return;
          if constexpr (std::is_same_v<T, bool>) {
            say("{}", argument.flag);
          } else {
            say("{} {}", argument.flag, value);
          }
        },
        argument.member);
  }

  void write_attention() {
    const bool grouped = a_.groups != a_.heads && !a_.mla;
    put("group_query_attention", grouped);
    put("num_query_groups", grouped ? draft_.integer(a_.groups) : draft_.none());
    put("normalization", word_of(norm_words(), a_.norm));
    put("apply_query_key_layer_scaling", false);
    if (a_.attention_scalar > 0) put("softmax_scale", 1 / std::sqrt(a_.attention_scalar));
    if (!a_.sinks) return;
    put("softmax_type", "learnable");
    say("--softmax-type learnable");
  }

  // What only layers with attention by kind have an argument for.
  void check_kinds() {
    Architecture by_kind = a_;
    by_kind.attention_by_kind = true;
    by_kind.norms_parts = false;
    by_kind.rope_theta = A().rope_theta;          // rotary_base, for all layers
    if (a_.window == 0 || a_.scales_embedding) {  // write_positions()
      by_kind.windowed_rope_theta = A().windowed_rope_theta;
    }
    for (const Argument& argument : plain_arguments()) {
      if (has_argument(argument.of, a_) || !has_argument(argument.of, by_kind)) continue;
      std::visit(
          [&](auto member) {
            if (by_kind.*member == A().*member) return;
            problem("its {} is {}, which only Gemma's layer specs in Megatron Bridge know",
                    argument.name, by_kind.*member);
          },
          argument.member);
    }
  }

  void write_layer_spec() {
    const LayerSpec* spec = layer_spec_of(a_);
    Architecture other_router = a_;
    other_router.expert_bias = !a_.expert_bias;
    if (spec == nullptr && layer_spec_of(other_router) != nullptr) {
      problem(
          "its router has {} bias on its scores (moe_router_enable_expert_bias), otherwise than "
          "in the layer spec of Megatron Bridge that norms as it does",
          a_.expert_bias ? "a" : "no");
    } else if (spec == nullptr) {
      problem(
          "its layers norm otherwise (only what attention and MLP give, or all heads at once) than "
          "those of Megatron-LM and of the layer specs of Megatron Bridge");
    } else if (!spec->function.empty()) {
      put(kLayerSpec, spec->function);
      // So does Megatron Bridge where layers differ in width: it saves them one by one.
      if (a_.doubles_ffn) put("hetereogenous_dist_checkpoint", true);
      if (a_.attention_by_kind && (!a_.qk_norm || a_.attention_scalar != 1)) {
        problem(
            "its layers do not norm queries and keys, or divide attention's scores: that layer "
            "spec always norms them, and never divides");
      }
      if (a_.norms_parts) check_mixture_of_kinds();
    }
  }

  // What Gemma 4's dense layers have and those with experts have not.
  void check_mixture_of_kinds() {
    if (a_.layer_embedding > 0 || a_.kv_taking_layers > 0 || a_.doubles_ffn) {
      problem(
          "its layers have experts, and embeddings of tokens for each layer, or take keys and "
          "values of others: that layer spec has no such layers with experts");
    }
    if (!a_.router_pre_softmax) {
      problem(
          "its router's scores are renormalised over the chosen experts, those of that layer spec "
          "never are");
    }
    const auto full = [&](int64_t layer) { return !a_.has_window(layer); };
    int64_t every = 1;
    while (every < a_.layers && !full(every - 1)) ++every;
    for (int64_t layer = 0; layer < a_.layers; ++layer) {
      if (full(layer) == ((layer + 1) % every == 0)) continue;
      return problem(
          "layer {} has {} window: that layer spec has {} with a window and then one without, over "
          "and over",
          layer, full(layer) ? "no" : "a", every - 1);
    }
  }

  // Hadamard's rotation, of both queries and keys, changes nothing: DeepSeek has it, GLM has not.
  void write_indexers() {
    put("experimental_attention_variant", "dsa");
    say("--experimental-attention-variant dsa");
    put("dsa_indexer_rotate_activation", !a_.index_rope_interleaved);
    if (a_.index_rope_interleaved) say("--no-dsa-indexer-rotate-activation");
    put("dsa_indexer_scoring_relu", true);
    // A list of kinds, of experts, makes Megatron-LM save layers by number.
    if (a_.index_every > 1 && a_.experts == 0) {
      problem(
          "only some of its layers have an indexer, which Megatron-LM saves for mixtures alone");
    }
  }

  void write_linear_attention() {
    if (!a_.any_linear()) return;
    put("experimental_attention_variant", "gated_delta_net");
    put("linear_attention_freq", a_.linear_layers);
    say("--experimental-attention-variant gated_delta_net");
    say("--linear-attention-freq [{:d}]", fmt::join(a_.linear_layers, ","));
  }

  void write_positions() {
    const std::string_view word = word_of(position_words(), a_.position_kind);
    if (word.empty()) problem("its positions are neither rotary nor learned");
    put("position_embedding_type", word);
    put("add_position_embedding", true);
    put("use_rotary_position_embeddings", false);
    put("rotary_percent", a_.rotary_fraction);
    if (a_.rotary_fraction != 1) say("--rotary-percent {}", a_.rotary_fraction);
    put("rotary_interleaved", a_.rope_interleaved);
    put("use_rope_scaling", a_.rope_scaling == RopeScaling::llama3);
    if (!a_.unrotated_layers.empty()) {
      put("no_rope_freq", a_.unrotated_layers);
      say("--no-rope-freq [{:d}]", fmt::join(a_.unrotated_layers, ","));
    }
    if (a_.windowed_rope_theta > 0 && a_.scales_embedding &&
        (!a_.attention_by_kind || a_.norms_parts)) {
      put("rotary_base",
          draft_.list({draft_.real(a_.windowed_rope_theta), draft_.real(a_.rope_theta)}));
    }
    if (a_.mla) return write_latent_positions();
    if (a_.position_kind != Positions::rope) return;
    if (a_.scales_embedding) return write_scaling_of_full_layers();
    switch (a_.rope_scaling) {
      case RopeScaling::none:
        break;
      case RopeScaling::linear:
        write_linear_scaling();
        break;
      case RopeScaling::llama3:
        write_llama3_scaling();
        break;
      case RopeScaling::yarn:
        write_yarn();
        break;
    }
  }

  // Gemma 3's layer spec has the linear scaling alone, by an argument that is another elsewhere.
  void write_scaling_of_full_layers() {
    if (a_.rope_scaling == RopeScaling::linear) {
      put("rope_scaling_factor", a_.rope_factor);
    } else if (a_.rope_scaling != RopeScaling::none) {
      problem("its positions are scaled, but not linearly, as those of that layer spec are");
    }
  }

  void write_linear_scaling() {
    if (!is_whole(a_.rope_factor)) {
      return problem("its positions are scaled by {}: rotary_seq_len_interpolation_factor is whole",
                     a_.rope_factor);
    }
    put("rotary_seq_len_interpolation_factor", static_cast<int64_t>(a_.rope_factor));
    say("--rotary-seq-len-interpolation-factor {}", a_.rope_factor);
  }

  void write_llama3_scaling() {
    const Llama3Constants fixed;
    check_fixed("low_freq_factor", a_.rope_low_freq_factor, fixed.low_freq_factor);
    check_fixed("high_freq_factor", a_.rope_high_freq_factor, fixed.high_freq_factor);
    check_fixed("original_max_position_embeddings", a_.rope_original_positions,
                fixed.original_positions);
    put("rope_scaling_factor", a_.rope_factor);
    say("--use-rope-scaling");
    say("--rope-scaling-factor {}", a_.rope_factor);
  }

  void write_yarn() {
    put("position_embedding_type", "yarn");
    const auto write = [&](std::string_view name, std::string_view flag, auto value) {
      put(name, value);
      say("{} {}", flag, value);
    };
    write("rotary_scaling_factor", "--rotary-scaling-factor", a_.rope_factor);
    write("yarn_original_max_position_embeddings", "--yarn-original-max-position-embeddings",
          a_.rope_original_positions);
    write("yarn_beta_fast", "--yarn-beta-fast", a_.rope_beta_fast);
    write("yarn_beta_slow", "--yarn-beta-slow", a_.rope_beta_slow);
    write("mscale", "--mscale", a_.rope_mscale);
    write("mscale_all_dim", "--mscale-all-dim", a_.rope_mscale_all_dim);
    put("yarn_correction_range_round_to_int", a_.rope_truncates);
    if (!a_.rope_truncates) say("--no-yarn-correction-range-round-to-int");
  }

  // A factor of 1 makes YaRN plain RoPE.
  void write_latent_positions() {
    const bool yarn = a_.rope_scaling == RopeScaling::yarn;
    if (!yarn && a_.rope_scaling != RopeScaling::none) {
      problem("its positions are scaled, but not by YaRN, as latent attention's are");
    }
    if (yarn) {
      const YarnConstants fixed;
      if (!a_.rope_truncates) {
        problem("the bounds of its YaRN are not rounded, those of latent attention always are");
      }
      check_fixed("beta_fast", a_.rope_beta_fast, fixed.beta_fast);
      check_fixed("beta_slow", a_.rope_beta_slow, fixed.beta_slow);
      check_fixed("original_max_position_embeddings", a_.rope_original_positions,
                  fixed.original_positions);
    }
    const auto write = [&](std::string_view name, std::string_view flag, double value,
                           double usual) {
      put(name, value);
      if (value != usual) say("{} {}", flag, value);
    };
    write("rotary_scaling_factor", "--rotary-scaling-factor", yarn ? a_.rope_factor : 1, 1);
    write("mscale", "--mscale", yarn ? a_.rope_mscale : 1, 1);
    write("mscale_all_dim", "--mscale-all-dim", yarn ? a_.rope_mscale_all_dim : 0, 0);
  }

  template <typename T>
  void check_fixed(std::string_view name, T value, T fixed) {
    if (value == fixed) return;
    problem("{} of the scaling of positions is {}; Megatron-LM has {} and no argument for it", name,
            value, fixed);
  }

  void write_window() {
    if (a_.window == 0) return;
    put("window_size", draft_.tuple({draft_.integer(a_.window - 1), draft_.integer(0)}));
    say("--window-size {},0", a_.window - 1);
    if (a_.windowed_layers.empty()) return;
    put("window_attn_skip_freq", a_.windowed_layers);
    say("--window-attn-skip-freq [{:d}]", fmt::join(a_.windowed_layers, ","));
  }

  void write_activation() {
    bool found = false;
    for (const ActivationFlag& each : activation_flags()) {
      const bool is_it = !found && each.activation == a_.activation;
      found = found || is_it;
      if (is_it || each.flag.empty()) put(each.name, is_it);
      if (is_it && !each.flag.empty()) say("{}", each.flag);
    }
    if (found) return;
    if (a_.activation == Activation::tanh_geglu) {
      put("gated_linear_unit", true);
      return put(kActivationFunction, kTanhGelu);
    }
    const bool tanh = a_.activation == Activation::gelu_tanh;
    if (tanh && !a_.linear_bias) {
      problem("GELU in its tanh form is Megatron's only with biases (bias_gelu_fusion)");
    }
    put("bias_gelu_fusion", tanh);
    if (!tanh) say("--no-bias-gelu-fusion");
  }

  // num_layers follows from the pattern.
  void write_hybrid() {
    const std::string pattern = pattern_of(a_).text();
    put("is_hybrid_model", true);
    put("ckpt_drop_redundant_extra_state", false);  // of releases with today's order of parameters
    put("hybrid_layer_pattern", std::string_view(pattern));
    put("hybrid_override_pattern", draft_.none());
    put("mtp_hybrid_override_pattern", draft_.none());
    say("--hybrid-layer-pattern {}", pattern);
  }

  void write_moe() {
    if ((a_.all_moe() && a_.index_every == 1) || a_.is_hybrid()) {
      put("moe_layer_freq", int64_t{1});
    } else {
      put("moe_layer_freq", a_.moe_layers);
    }
    put("moe_router_score_function", word_of(score_words(), a_.router_score));
  }

  const Architecture& a_;
  Draft& draft_;
  const Value& args_;
  WrittenArguments written_;
};

}  // namespace

WrittenArguments write_arguments(const Architecture& architecture, Draft& draft,
                                 const Value& args) {
  return Writer(architecture, draft, args).run();
}

}  // namespace ferry
