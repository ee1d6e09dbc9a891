#include "ckpt/megatron/model/parameter_rules.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace ferry {
namespace {

struct ModuleRule {
  std::string_view name;
  Split split;  // of its weight; the bias follows it, but for columns
};

// In order of registration, as with norms inside the linear layers.
constexpr std::array kModules = {
    ModuleRule{"input_layernorm", Split::replicated},
    ModuleRule{"self_attention.core_attention", Split::rows},
    ModuleRule{"self_attention.linear_proj", Split::columns},
    ModuleRule{"self_attention.linear_qkv", Split::rows},
    ModuleRule{"self_attention.linear_q_proj", Split::rows},
    ModuleRule{"self_attention.linear_q_down_proj", Split::latent_rows},
    ModuleRule{"self_attention.linear_q_up_proj", Split::rows},
    ModuleRule{"self_attention.linear_kv_down_proj", Split::latent_rows},
    ModuleRule{"self_attention.linear_kv_up_proj", Split::rows},
    ModuleRule{"self_attention.q_layernorm", Split::replicated},
    ModuleRule{"self_attention.k_layernorm", Split::replicated},
    ModuleRule{"self_attention.kv_layernorm", Split::replicated},
    ModuleRule{"pre_mlp_layernorm", Split::replicated},
    ModuleRule{"mlp.linear_fc1", Split::gated_rows},
    ModuleRule{"mlp.activation_func", Split::replicated},
    ModuleRule{"mlp.linear_fc2", Split::columns},
    ModuleRule{"mlp.router", Split::replicated},
    ModuleRule{"mlp.fc1_latent_proj", Split::replicated},
    ModuleRule{"mlp.fc2_latent_proj", Split::replicated},
    ModuleRule{"mlp.experts", Split::replicated},
    ModuleRule{"mlp.shared_experts", Split::replicated},
    ModuleRule{"mlp.shared_experts.linear_fc1", Split::gated_rows},
    ModuleRule{"mlp.shared_experts.linear_fc2", Split::columns},
};

// In order of registration inside a module.
constexpr std::array<std::string_view, 12> kAttributes = {"layer_norm_weight",
                                                          "layer_norm_bias",
                                                          "weight",
                                                          "weight_w",
                                                          "weight_v",
                                                          "bias",
                                                          "bias_w",
                                                          "bias_v",
                                                          "alpha_p",
                                                          "alpha_n",
                                                          "gate_weight",
                                                          "softmax_offset"};

constexpr int kStride = 16;  // orders a module

int module_index(std::string_view name) {
  for (size_t i = 0; i < kModules.size(); ++i) {
    if (kModules[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

Half half_of(std::string_view* attribute) {
  Half half = Half::none;
  if (attribute->ends_with("_w")) half = Half::gate;
  if (attribute->ends_with("_v")) half = Half::up;
  if (half != Half::none) attribute->remove_suffix(2);
  return half;
}

bool belongs(std::string_view module, std::string_view attribute) {
  if (attribute == "alpha_p" || attribute == "alpha_n") return module == "mlp.activation_func";
  if (attribute == "gate_weight") return module == "mlp.shared_experts";
  if (attribute == "softmax_offset") return module == "self_attention.core_attention";
  return module != "mlp.activation_func" && module != "mlp.shared_experts" &&
         module != "self_attention.core_attention" && module != "mlp.experts";
}

Split split_of(Split weight, std::string_view attribute) {
  if (attribute.starts_with("layer_norm_")) return Split::replicated;
  if (weight == Split::columns && attribute == "bias") return Split::replicated;
  return weight;
}

}  // namespace

std::optional<ParameterRule> layer_rule(std::string_view suffix) {
  ParameterRule rule;
  if (suffix == "mlp.router.expert_bias" || suffix == "mlp.router.local_tokens_per_expert" ||
      suffix == "mlp.router.global_tokens_per_expert") {
    rule.trainable = false;
    rule.order = module_index("mlp.router") * kStride + kStride - 1;
    return rule;
  }
  // Norms after a row-parallel linear are submodules of it.
  constexpr std::string_view kPostNorm = ".post_layernorm";
  size_t dot = suffix.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  std::string_view module = suffix.substr(0, dot), attribute = suffix.substr(dot + 1);
  const bool post_norm = module.ends_with(kPostNorm);
  if (post_norm) module.remove_suffix(kPostNorm.size());
  const int index = module_index(module);
  if (index < 0 || !belongs(module, attribute)) return std::nullopt;
  for (size_t i = 0; i < kAttributes.size(); ++i) {
    if (kAttributes[i] != attribute) continue;
    rule.half = half_of(&attribute);
    rule.order = index * kStride + static_cast<int>(i) + (post_norm ? 4 : 0);
    rule.split = post_norm ? Split::replicated : split_of(kModules[index].split, attribute);
    rule.attention_norm =
        module == "self_attention.linear_qkv" && attribute.starts_with("layer_norm_");
    return rule;
  }
  return std::nullopt;
}

int experts_order() { return module_index("mlp.experts") * kStride; }

int leading_norm_order(std::string_view suffix) { return suffix.ends_with("_bias") ? 1 : 0; }

Split ExpertRule::split() const {
  if (projection == 0) return Split::gated_rows;
  return bias ? Split::replicated : Split::columns;
}

std::optional<ExpertRule> expert_rule(std::string_view suffix) {
  if (!suffix.starts_with(kRoutedExperts)) return std::nullopt;
  suffix.remove_prefix(kRoutedExperts.size());
  ExpertRule rule;
  if (const auto number = leading_number(suffix, &suffix)) rule.expert = *number;
  if (suffix.starts_with("linear_fc1.")) {
    rule.projection = 0;
  } else if (suffix.starts_with("linear_fc2.")) {
    rule.projection = 1;
  } else {
    return std::nullopt;
  }
  std::string_view attribute = suffix.substr(11);
  rule.half = half_of(&attribute);
  if (attribute != "weight" && attribute != "bias") return std::nullopt;
  if (rule.half != Half::none && rule.projection != 0) return std::nullopt;
  rule.bias = attribute == "bias";
  return rule;
}

std::optional<ParameterRule> mtp_rule(std::string_view suffix) {
  ParameterRule rule;  // orders are around those of the inner layer
  if (suffix.starts_with("enorm.")) {
    rule.order = -30;
  } else if (suffix.starts_with("hnorm.")) {
    rule.order = -20;
  } else if (suffix.starts_with("eh_proj.")) {
    rule.order = -10;
    rule.split = Split::rows;
  } else if (suffix.starts_with("final_layernorm.")) {
    rule.order = 1 << 20;
  } else {
    return std::nullopt;
  }
  if (suffix.ends_with(".bias")) {
    ++rule.order;
  } else if (!suffix.ends_with(".weight")) {
    return std::nullopt;
  }
  return rule;
}

std::optional<std::string_view> inside_mtp(std::string_view suffix) {
  for (std::string_view prefix : {"transformer_layer.", "mtp_model_layer."}) {
    if (suffix.starts_with(prefix)) return suffix.substr(prefix.size());
  }
  return std::nullopt;
}

bool is_buffer(std::string_view name) {
  const size_t layers = name.find("layers.");
  if (layers == std::string_view::npos) return false;
  std::string_view suffix = name.substr(layers + 7);
  leading_number(suffix, &suffix);
  suffix = inside_mtp(suffix).value_or(suffix);
  const auto rule = layer_rule(suffix);
  return rule && !rule->trainable;
}

std::optional<TensorSplit> tensor_split(std::string_view name) {
  if (name == "embedding.word_embeddings.weight" || name.starts_with("output_layer.")) {
    return TensorSplit{Split::rows};
  }
  if (name.starts_with("embedding.") || name.starts_with("decoder.final_layernorm.")) {
    return TensorSplit{};
  }
  const bool mtp = name.starts_with("mtp.layers.");
  if (!mtp && !name.starts_with("decoder.layers.")) return std::nullopt;
  std::string_view suffix = name.substr(name.find("layers.") + 7);
  leading_number(suffix, &suffix);
  if (mtp) {
    if (const auto rule = mtp_rule(suffix)) return TensorSplit{rule->split};
    suffix = inside_mtp(suffix).value_or(std::string_view());
  }
  if (const auto rule = expert_rule(suffix)) return TensorSplit{rule->split(), true};
  if (const auto rule = layer_rule(suffix)) return TensorSplit{rule->split};
  return std::nullopt;
}

std::optional<int64_t> leading_number(std::string_view text, std::string_view* rest) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr int64_t kMost = int64_t{1} << 30;  // layers, experts
  if (error != std::errc() || number < 0 || number > kMost || text.starts_with('-')) {
    return std::nullopt;
  }
  const size_t used = end - text.data();
  if (used < text.size() && text[used] != '.') return std::nullopt;
  *rest = text.substr(std::min(text.size(), used + 1));
  return number;
}

}  // namespace ferry
