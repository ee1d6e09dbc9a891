// The language model of Qwen3-VL's mixtures (transformers/models/qwen3_vl_moe): Qwen3-MoE, with the
// experts of a layer in two tensors, transposed.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family qwen3_vl_moe_family() {
  Family family = qwen3_moe_family();
  family.name = "qwen3_vl_moe_text";
  family.class_name = "Qwen3VLMoeForConditionalGeneration";
  for (Rule& rule : family.rules) {
    if (rule.megatron.ends_with("{expert}.linear_fc1.weight")) {
      rule.hugging_face = {"model.layers.{layer}.mlp.experts.gate_up_proj"};
      rule.transform = Transform::gate_up_transpose;
    } else if (rule.megatron.ends_with("{expert}.linear_fc2.weight")) {
      rule.hugging_face = {"model.layers.{layer}.mlp.experts.down_proj"};
      rule.transform = Transform::transpose;
    }
  }
  family.torchtitan = TitanPairs::no_model;
  return family;
}

}  // namespace ferry
