#include "convert/arguments/unexpressed.h"

#include <fmt/format.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "convert/arguments/known_arguments.h"

namespace ferry {
namespace {

class ArgumentCheck {
 public:
  ArgumentCheck(const Value& args, ReadArguments& result) : args_(args), result_(result) {}

  void run() {
    check_flags({"apply_residual_connection_post_layernorm", "qk_l2_norm", "enable_mhc_connections",
                 "moe_apply_probs_on_input", "post_layer_norm", "retro_add_retriever", "use_mup"},
                false);
    if (!a_.is_hybrid()) check_flags({"is_hybrid_model"}, false);
    check_flags({"attn_layernorm", "mlp_layernorm", "final_layernorm"}, true);
    if (a_.index_heads > 0) check_flags({"dsa_indexer_scoring_relu"}, true);
    check_unset({"mrope_section", "heterogeneous_layers_config_path",
                 "heterogeneous_layers_config_encoded_json"});
    if (const auto by = get("input_embeddings_multiplier").real(); by && *by != 1) {
      inexpressible("input_embeddings_multiplier", *by);
    }
    if (const auto kind = get("softmax_type").string(); kind && kind != "vanilla" && !a_.sinks) {
      inexpressible("softmax_type", *kind);
    }
    if (a_.experts > 0) check_experts();
    warn_of_unknown();
    if (a_.hidden_dropout != 0 && a_.position_kind == Positions::rope) {
      warn("hidden_dropout {} has no counterpart; it matters for further training only",
           a_.hidden_dropout);
    }
  }

 private:
  Value get(std::string_view name) const { return args_.get(name); }

  void check_flags(std::initializer_list<std::string_view> names, bool harmless) {
    for (std::string_view name : names) {
      const std::optional<bool> value = get(name).boolean();
      if (value && *value != harmless) inexpressible(name, *value);
    }
  }
  void check_unset(std::initializer_list<std::string_view> names) {
    for (std::string_view name : names) {
      if (!get(name).is_none()) inexpressible(name, "set");
    }
  }

  void check_experts() {
    check_unset({"moe_router_topk_limited_devices"});
    // Others add a loss, these choose experts by other numbers than the scores.
    constexpr std::string_view kBalancing = "moe_router_load_balancing_type";
    const Value kinds = get(kBalancing);
    const bool is_list = kinds.kind() == ValueKind::list;
    for (size_t i = 0; i < (is_list ? kinds.size() : 1); ++i) {
      const auto kind = (is_list ? kinds[i] : kinds).string();
      if (kind == "sinkhorn" || kind == "quantile_balancing") inexpressible(kBalancing, *kind);
    }
    if (!get("moe_expert_capacity_factor").is_none()) {
      warn("moe_expert_capacity_factor made training drop tokens; transformers never drops any");
    }
  }

  void warn_of_unknown() {
    if (const std::string unknown = unknown_arguments(args_); !unknown.empty()) {
      warn(
          "ferry does not know these arguments, of a fork of Megatron-LM or a later release, and "
          "converts as if they changed nothing in the model: {}; compare logits if one may",
          unknown);
    }
  }

  template <typename T>
  void inexpressible(std::string_view name, const T& value) {
    result_.problems.push_back(
        fmt::format("{} is {}, which no Hugging Face family can express", name, value));
  }
  template <typename... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    result_.warnings.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  const Value& args_;
  ReadArguments& result_;
  const Architecture& a_ = result_.architecture;
};

}  // namespace

void find_unexpressed(const Value& args, ReadArguments& result) {
  ArgumentCheck(args, result).run();
}

}  // namespace ferry
