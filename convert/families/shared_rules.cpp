#include "convert/families/shared.h"

namespace ferry::shared {

bool is_dense(const Architecture& a, int64_t layer) { return !a.is_moe(layer); }
bool is_moe(const Architecture& a, int64_t layer) { return a.is_moe(layer); }
bool untied(const Architecture& a, int64_t) { return !a.tied; }
bool has_linear_bias(const Architecture& a, int64_t) { return a.linear_bias; }
bool has_qkv_bias(const Architecture& a, int64_t) { return a.qkv_bias || a.linear_bias; }
bool has_qk_norm(const Architecture& a, int64_t) { return a.qk_norm; }

namespace {
bool has_dense_bias(const Architecture& a, int64_t layer) {
  return a.linear_bias && !a.is_moe(layer);
}
bool compresses_queries(const Architecture& a, int64_t) { return a.q_lora_rank > 0; }
bool has_query_norm(const Architecture& a, int64_t) { return a.q_lora_rank > 0 && a.qk_norm; }
bool keeps_queries(const Architecture& a, int64_t) { return a.q_lora_rank == 0; }
}  // namespace

std::vector<Rule> rules(std::initializer_list<std::vector<Rule>> groups) {
  std::vector<Rule> all;
  for (const std::vector<Rule>& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

std::vector<Rule> embedding() {
  return {{"embedding.word_embeddings.weight",
           {"model.embed_tokens.weight"},
           Transform::vocabulary,
           {Size::padded_vocab, Size::hidden}}};
}

std::vector<Rule> attention() {
  return {
      {"decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight",
       {"model.layers.{layer}.input_layernorm.weight"},
       Transform::copy,
       {Size::hidden}},
      {"decoder.layers.{layer}.self_attention.linear_qkv.weight",
       {"model.layers.{layer}.self_attn.q_proj.weight",
        "model.layers.{layer}.self_attn.k_proj.weight",
        "model.layers.{layer}.self_attn.v_proj.weight"},
       Transform::qkv,
       {Size::qkv, Size::hidden}},
      {"decoder.layers.{layer}.self_attention.linear_qkv.bias",
       {"model.layers.{layer}.self_attn.q_proj.bias", "model.layers.{layer}.self_attn.k_proj.bias",
        "model.layers.{layer}.self_attn.v_proj.bias"},
       Transform::qkv,
       {Size::qkv},
       has_qkv_bias},
      {"decoder.layers.{layer}.self_attention.q_layernorm.weight",
       {"model.layers.{layer}.self_attn.q_norm.weight"},
       Transform::copy,
       {Size::head},
       has_qk_norm},
      {"decoder.layers.{layer}.self_attention.k_layernorm.weight",
       {"model.layers.{layer}.self_attn.k_norm.weight"},
       Transform::copy,
       {Size::head},
       has_qk_norm},
      {"decoder.layers.{layer}.self_attention.linear_proj.weight",
       {"model.layers.{layer}.self_attn.o_proj.weight"},
       Transform::copy,
       {Size::hidden, Size::attention}},
      {"decoder.layers.{layer}.self_attention.linear_proj.bias",
       {"model.layers.{layer}.self_attn.o_proj.bias"},
       Transform::copy,
       {Size::hidden},
       has_linear_bias},
  };
}

// The norms' epsilon inside the compression is fixed in transformers (write_latent warns).
std::vector<Rule> latent_attention() {
  return {
      {"decoder.layers.{layer}.input_layernorm.weight",
       {"model.layers.{layer}.input_layernorm.weight"},
       Transform::copy,
       {Size::hidden}},
      {"decoder.layers.{layer}.self_attention.linear_q_proj.weight",
       {"model.layers.{layer}.self_attn.q_proj.weight"},
       Transform::copy,
       {Size::q_up, Size::hidden},
       keeps_queries},
      {"decoder.layers.{layer}.self_attention.linear_q_down_proj.weight",
       {"model.layers.{layer}.self_attn.q_a_proj.weight"},
       Transform::copy,
       {Size::q_lora, Size::hidden},
       compresses_queries},
      {"decoder.layers.{layer}.self_attention.linear_q_up_proj.layer_norm_weight",
       {"model.layers.{layer}.self_attn.q_a_layernorm.weight"},
       Transform::copy,
       {Size::q_lora},
       has_query_norm},
      {"decoder.layers.{layer}.self_attention.linear_q_up_proj.weight",
       {"model.layers.{layer}.self_attn.q_b_proj.weight"},
       Transform::copy,
       {Size::q_up, Size::q_lora},
       compresses_queries},
      {"decoder.layers.{layer}.self_attention.linear_kv_down_proj.weight",
       {"model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight"},
       Transform::copy,
       {Size::kv_down, Size::hidden}},
      {"decoder.layers.{layer}.self_attention.linear_kv_up_proj.layer_norm_weight",
       {"model.layers.{layer}.self_attn.kv_a_layernorm.weight"},
       Transform::copy,
       {Size::kv_lora},
       has_qk_norm},
      {"decoder.layers.{layer}.self_attention.linear_kv_up_proj.weight",
       {"model.layers.{layer}.self_attn.kv_b_proj.weight"},
       Transform::copy,
       {Size::kv_up, Size::kv_lora}},
      {"decoder.layers.{layer}.self_attention.linear_proj.weight",
       {"model.layers.{layer}.self_attn.o_proj.weight"},
       Transform::copy,
       {Size::hidden, Size::attention}},
  };
}

std::vector<Rule> dense_mlp() {
  return {
      {"decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight",
       {"model.layers.{layer}.post_attention_layernorm.weight"},
       Transform::copy,
       {Size::hidden},
       is_dense},
      {"decoder.layers.{layer}.mlp.linear_fc1.weight",
       {"model.layers.{layer}.mlp.gate_proj.weight", "model.layers.{layer}.mlp.up_proj.weight"},
       Transform::gate_up,
       {Size::fc1, Size::hidden},
       is_dense},
      {"decoder.layers.{layer}.mlp.linear_fc1.bias",
       {"model.layers.{layer}.mlp.gate_proj.bias", "model.layers.{layer}.mlp.up_proj.bias"},
       Transform::gate_up,
       {Size::fc1},
       has_dense_bias},
      {"decoder.layers.{layer}.mlp.linear_fc2.weight",
       {"model.layers.{layer}.mlp.down_proj.weight"},
       Transform::copy,
       {Size::hidden, Size::ffn},
       is_dense},
      {"decoder.layers.{layer}.mlp.linear_fc2.bias",
       {"model.layers.{layer}.mlp.down_proj.bias"},
       Transform::copy,
       {Size::hidden},
       has_dense_bias},
  };
}

std::vector<Rule> experts() {
  return {
      {"decoder.layers.{layer}.pre_mlp_layernorm.weight",
       {"model.layers.{layer}.post_attention_layernorm.weight"},
       Transform::copy,
       {Size::hidden},
       is_moe},
      {"decoder.layers.{layer}.mlp.router.weight",
       {"model.layers.{layer}.mlp.gate.weight"},
       Transform::copy,
       {Size::experts, Size::hidden},
       is_moe},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc1.weight",
       {"model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
        "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"},
       Transform::gate_up,
       {Size::expert_fc1, Size::hidden},
       is_moe},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc2.weight",
       {"model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
       Transform::copy,
       {Size::hidden, Size::expert_ffn},
       is_moe},
  };
}

std::vector<Rule> shared_experts() {
  return {
      {"decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight",
       {"model.layers.{layer}.mlp.shared_experts.gate_proj.weight",
        "model.layers.{layer}.mlp.shared_experts.up_proj.weight"},
       Transform::gate_up,
       {Size::shared_fc1, Size::hidden},
       is_moe},
      {"decoder.layers.{layer}.mlp.shared_experts.linear_fc2.weight",
       {"model.layers.{layer}.mlp.shared_experts.down_proj.weight"},
       Transform::copy,
       {Size::hidden, Size::shared_ffn},
       is_moe},
  };
}

std::vector<Rule> head() {
  return {
      {"decoder.final_layernorm.weight", {"model.norm.weight"}, Transform::copy, {Size::hidden}},
      {"output_layer.weight",
       {"lm_head.weight"},
       Transform::vocabulary,
       {Size::padded_vocab, Size::hidden},
       untied},
  };
}

}  // namespace ferry::shared
