#include "ckpt/megatron/model/layer_spec.h"

#include <algorithm>
#include <iterator>

#include "ckpt/megatron/model/args.h"

namespace ferry {
namespace {

constexpr LayerSpec kUsual = {};  // what Megatron-LM builds from arguments
constexpr LayerSpec kLayerSpecs[] = {
    {.function = "megatron.bridge.models.minimax_m2.minimax_m2_provider.minimax_m2_layer_spec",
     .model_type = "minimax_m2",
     .norms_all_heads = true,
     .expert_bias = true},
    {.function = "megatron.bridge.models.olmoe.olmoe_provider.olmoe_layer_spec",
     .model_type = "olmoe",
     .norms_all_heads = true},
    {.function = "megatron.bridge.models.exaone.exaone4.exaone4_provider.exaone4_layer_spec",
     .model_type = "exaone4",
     .input_norms = false,
     .output_norms = true},
    {.function = "megatron.bridge.models.gemma.gemma3_provider.gemma3_layer_spec",
     .model_type = "gemma3_text",
     .output_norms = true,
     .scales_embedding = true},
    {.function = "megatron.bridge.models.gemma.modeling_gemma4.get_gemma4_layer_spec",
     .output_norms = true,
     .scales_embedding = true,
     .norm_modules = true,
     .attention_by_kind = true,
     .provider = "Gemma4DenseProvider"},
    {.function = "megatron.bridge.models.gemma.modeling_gemma4._gemma4_block_spec",
     .output_norms = true,
     .scales_embedding = true,
     .norms_parts = true,
     .attention_by_kind = true,
     .provider = "Gemma4ModelProvider"},
};

std::string_view last_part(std::string_view dotted) {
  return dotted.substr(dotted.find_last_of('.') + 1);
}

}  // namespace

void LayerSpec::apply(Architecture& a) const {
  a.input_norms = input_norms;
  a.output_norms = output_norms;
  a.norms_all_heads = norms_all_heads;
  a.scales_embedding = scales_embedding;
  a.norm_modules = norm_modules;
  a.norms_parts = norms_parts;
  a.attention_by_kind = a.norms_values = a.scales_layers = attention_by_kind;
  if (!attention_by_kind) return;
  a.qk_norm = true;
  a.attention_scalar = 1;
  // Its router makes shares of the chosen scores whatever the argument says.
  if (norms_parts) a.router_pre_softmax = true;
}

const LayerSpec* layer_spec_of(const Value& args) {
  const Value named = args.get(kLayerSpec);
  const std::string_view function = last_part(function_name(named));
  const std::string_view type = args.get("llm_model_type").string().value_or("");
  const std::string_view provider = last_part(args.text());
  const auto* found = std::ranges::find_if(kLayerSpecs, [&](const LayerSpec& each) {
    return last_part(each.function) == function ||
           (!each.model_type.empty() && each.model_type == type) ||
           (!each.provider.empty() && each.provider == provider);
  });
  return found != std::end(kLayerSpecs) ? found : nullptr;
}

const LayerSpec* layer_spec_of(const Architecture& a) {
  const auto builds = [&](const LayerSpec& each) {
    return each.input_norms == a.input_norms && each.output_norms == a.output_norms &&
           each.norms_all_heads == a.norms_all_heads &&
           each.scales_embedding == a.scales_embedding && each.norm_modules == a.norm_modules &&
           each.norms_parts == a.norms_parts && each.attention_by_kind == a.attention_by_kind &&
           each.attention_by_kind == a.norms_values && each.attention_by_kind == a.scales_layers;
  };
  if (builds(kUsual)) return &kUsual;
  const auto* found = std::ranges::find_if(kLayerSpecs, [&](const LayerSpec& each) {
    return builds(each) && each.expert_bias == a.expert_bias;
  });
  return found != std::end(kLayerSpecs) ? found : nullptr;
}

}  // namespace ferry
