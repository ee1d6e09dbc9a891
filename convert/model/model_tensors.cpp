#include "convert/model/model_tensors.h"

#include <unordered_map>
#include <utility>

#include "convert/families/shared.h"
#include "convert/model/family.h"
#include "convert/model/stacking.h"

namespace ferry {
namespace {

bool has_layer_norm(const Architecture& a, int64_t) { return a.norm == Norm::layer; }
bool has_qk_layer_norm(const Architecture& a, int64_t) {
  return a.norm == Norm::layer && a.qk_norm;
}
bool has_query_layer_norm(const Architecture& a, int64_t layer) {
  return has_qk_layer_norm(a, layer) && a.q_lora_rank > 0;
}
bool has_dense_layer_norm(const Architecture& a, int64_t layer) {
  return a.norm == Norm::layer && !a.is_moe(layer);
}
bool has_expert_layer_norm(const Architecture& a, int64_t layer) {
  return a.norm == Norm::layer && a.is_moe(layer);
}
bool learns_positions(const Architecture& a, int64_t) {
  return a.position_kind == Positions::learned;
}
bool has_xielu(const Architecture& a, int64_t layer) {
  return a.activation == Activation::xielu && !a.is_moe(layer);
}
bool stores_expert_bias(const Architecture& a, int64_t layer) {
  return a.is_moe(layer) && a.expert_bias;
}
bool has_shared(const Architecture& a, int64_t layer) {
  return a.is_moe(layer) && a.shared_ffn > 0;
}
bool has_shared_gate(const Architecture& a, int64_t layer) {
  return has_shared(a, layer) && a.shared_gate;
}

Rule rule(std::string_view name, std::vector<Size> shape,
          bool (*when)(const Architecture&, int64_t) = nullptr, bool fp32 = false) {
  Rule rule;
  rule.megatron = name;
  // Rules of prediction layers are those whose other name counts on behind the decoder's layers.
  rule.hugging_face = {name.find("{mtp}") == name.npos ? "" : "{layer}"};
  rule.shape = std::move(shape);
  rule.when = when;
  rule.fp32 = fp32;
  return rule;
}

// Of norms in and before attention.
std::vector<Rule> attention_biases(const Architecture& a) {
  if (!a.mla) {
    return {rule("decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_bias", {Size::hidden},
                 has_layer_norm),
            rule("decoder.layers.{layer}.self_attention.q_layernorm.bias", {Size::head},
                 has_qk_layer_norm),
            rule("decoder.layers.{layer}.self_attention.k_layernorm.bias", {Size::head},
                 has_qk_layer_norm)};
  }
  return {rule("decoder.layers.{layer}.input_layernorm.bias", {Size::hidden}, has_layer_norm),
          rule("decoder.layers.{layer}.self_attention.linear_q_up_proj.layer_norm_bias",
               {Size::q_lora}, has_query_layer_norm),
          rule("decoder.layers.{layer}.self_attention.linear_kv_up_proj.layer_norm_bias",
               {Size::kv_lora}, has_qk_layer_norm)};
}

// What families have in common, under Megatron's names, and what some of them add to it.
Family every_model(const Architecture& a) {
  using namespace shared;
  Family family;
  std::vector<Rule> shared_rules;
  for (Rule& one : shared_experts()) {
    one.when = has_shared;
    shared_rules.push_back(std::move(one));
  }
  family.rules = rules({
      embedding(),
      {rule("embedding.position_embeddings.weight", {Size::positions, Size::hidden},
            learns_positions)},
      a.mla ? latent_attention() : attention(),
      attention_biases(a),
      dense_mlp(),
      {rule("decoder.layers.{layer}.mlp.linear_fc1.layer_norm_bias", {Size::hidden},
            has_dense_layer_norm),
       rule("decoder.layers.{layer}.mlp.activation_func.alpha_p", {Size::one}, has_xielu),
       rule("decoder.layers.{layer}.mlp.activation_func.alpha_n", {Size::one}, has_xielu)},
      experts(),
      {rule("decoder.layers.{layer}.pre_mlp_layernorm.bias", {Size::hidden}, has_expert_layer_norm),
       rule("decoder.layers.{layer}.mlp.router.expert_bias", {Size::experts}, stores_expert_bias,
            true)},
      std::move(shared_rules),
      {rule("decoder.layers.{layer}.mlp.shared_experts.gate_weight", {Size::one, Size::hidden},
            has_shared_gate)},
      {rule("mtp.layers.{mtp}.enorm.weight", {Size::hidden}),
       rule("mtp.layers.{mtp}.hnorm.weight", {Size::hidden}),
       rule("mtp.layers.{mtp}.eh_proj.weight", {Size::hidden, Size::twice_hidden}),
       rule("mtp.layers.{mtp}.final_layernorm.weight", {Size::hidden}),
       rule("mtp.layers.{mtp}.enorm.bias", {Size::hidden}, has_layer_norm),
       rule("mtp.layers.{mtp}.hnorm.bias", {Size::hidden}, has_layer_norm),
       rule("mtp.layers.{mtp}.final_layernorm.bias", {Size::hidden}, has_layer_norm)},
      head(),
      {rule("decoder.final_layernorm.bias", {Size::hidden}, has_layer_norm)},
  });
  return family;
}

}  // namespace

std::vector<ModelTensor> model_tensors(const Architecture& a, DType dtype) {
  std::vector<ModelTensor> tensors;
  std::unordered_map<std::string, size_t> known;
  const Family family = every_model(a);
  for (const Link& link : expand(family, a)) {
    StackPlace place = stack_place(link.megatron, a);
    if (!known.emplace(place.name, tensors.size()).second) continue;
    ModelTensor tensor{std::move(place.name), std::move(place.extents),
                       link.rule->fp32 ? DType::f32 : dtype};
    tensor.shape.insert(tensor.shape.end(), link.shape.begin(), link.shape.end());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace ferry
