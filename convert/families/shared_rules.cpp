#include "convert/families/shared.h"

namespace ferry::shared {
namespace {

bool lacks_expert_bias(const Architecture& a, int64_t layer) {
  return a.is_moe(layer) && !a.expert_bias;
}
bool is_tied(const Architecture& a, int64_t) { return a.tied; }

}  // namespace

std::vector<Rule> embedding() {
  return {
      {"embedding.word_embeddings.weight", {"model.embed_tokens.weight"}, Transform::vocabulary}};
}

std::vector<Rule> attention() {
  return {
      {"decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight",
       {"model.layers.{layer}.input_layernorm.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_qkv.weight",
       {"model.layers.{layer}.self_attn.q_proj.weight",
        "model.layers.{layer}.self_attn.k_proj.weight",
        "model.layers.{layer}.self_attn.v_proj.weight"},
       Transform::qkv},
      {"decoder.layers.{layer}.self_attention.linear_qkv.bias",
       {"model.layers.{layer}.self_attn.q_proj.bias", "model.layers.{layer}.self_attn.k_proj.bias",
        "model.layers.{layer}.self_attn.v_proj.bias"},
       Transform::qkv},
      {"decoder.layers.{layer}.self_attention.q_layernorm.weight",
       {"model.layers.{layer}.self_attn.q_norm.weight"}},
      {"decoder.layers.{layer}.self_attention.k_layernorm.weight",
       {"model.layers.{layer}.self_attn.k_norm.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_proj.weight",
       {"model.layers.{layer}.self_attn.o_proj.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_proj.bias",
       {"model.layers.{layer}.self_attn.o_proj.bias"}},
  };
}

// The norms' epsilon inside the compression is fixed in transformers (warn_of_latent_norms() says
// so).
std::vector<Rule> latent_attention() {
  return {
      {"decoder.layers.{layer}.input_layernorm.weight",
       {"model.layers.{layer}.input_layernorm.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_q_proj.weight",
       {"model.layers.{layer}.self_attn.q_proj.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_q_down_proj.weight",
       {"model.layers.{layer}.self_attn.q_a_proj.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_q_up_proj.layer_norm_weight",
       {"model.layers.{layer}.self_attn.q_a_layernorm.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_q_up_proj.weight",
       {"model.layers.{layer}.self_attn.q_b_proj.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_kv_down_proj.weight",
       {"model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_kv_up_proj.layer_norm_weight",
       {"model.layers.{layer}.self_attn.kv_a_layernorm.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_kv_up_proj.weight",
       {"model.layers.{layer}.self_attn.kv_b_proj.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_proj.weight",
       {"model.layers.{layer}.self_attn.o_proj.weight"}},
  };
}

std::vector<Rule> indexer() {
  return {
      {"decoder.layers.{layer}.self_attention.core_attention.indexer.linear_wq_b.weight",
       {"model.layers.{layer}.self_attn.indexer.wq_b.weight"}},
      {"decoder.layers.{layer}.self_attention.core_attention.indexer.linear_wk.weight",
       {"model.layers.{layer}.self_attn.indexer.wk.weight"}},
      {"decoder.layers.{layer}.self_attention.core_attention.indexer.k_norm.weight",
       {"model.layers.{layer}.self_attn.indexer.k_norm.weight"}},
      {"decoder.layers.{layer}.self_attention.core_attention.indexer.k_norm.bias",
       {"model.layers.{layer}.self_attn.indexer.k_norm.bias"}},
      {"decoder.layers.{layer}.self_attention.core_attention.indexer.linear_weights_proj.weight",
       {"model.layers.{layer}.self_attn.indexer.weights_proj.weight"}},
  };
}

std::vector<Rule> output_norms() {
  return {{"decoder.layers.{layer}.self_attention.linear_proj.post_layernorm.weight",
           {"model.layers.{layer}.post_attention_layernorm.weight"}},
          {"decoder.layers.{layer}.mlp.linear_fc2.post_layernorm.weight",
           {"model.layers.{layer}.post_feedforward_layernorm.weight"}}};
}

std::vector<Rule> dense_mlp() {
  return {
      {"decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight",
       {"model.layers.{layer}.post_attention_layernorm.weight"}},
      {"decoder.layers.{layer}.mlp.linear_fc1.weight",
       {"model.layers.{layer}.mlp.gate_proj.weight", "model.layers.{layer}.mlp.up_proj.weight"},
       Transform::gate_up},
      {"decoder.layers.{layer}.mlp.linear_fc1.bias",
       {"model.layers.{layer}.mlp.gate_proj.bias", "model.layers.{layer}.mlp.up_proj.bias"},
       Transform::gate_up},
      {"decoder.layers.{layer}.mlp.linear_fc2.weight",
       {"model.layers.{layer}.mlp.down_proj.weight"}},
      {"decoder.layers.{layer}.mlp.linear_fc2.bias", {"model.layers.{layer}.mlp.down_proj.bias"}},
  };
}

std::vector<Rule> experts() {
  return {
      {"decoder.layers.{layer}.pre_mlp_layernorm.weight",
       {"model.layers.{layer}.post_attention_layernorm.weight"}},
      {"decoder.layers.{layer}.mlp.router.weight", {"model.layers.{layer}.mlp.gate.weight"}},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc1.weight",
       {"model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
        "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"},
       Transform::gate_up},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc2.weight",
       {"model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"}},
  };
}

std::vector<Rule> shared_experts() {
  return {
      {"decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight",
       {"model.layers.{layer}.mlp.shared_experts.gate_proj.weight",
        "model.layers.{layer}.mlp.shared_experts.up_proj.weight"},
       Transform::gate_up},
      {"decoder.layers.{layer}.mlp.shared_experts.linear_fc2.weight",
       {"model.layers.{layer}.mlp.shared_experts.down_proj.weight"}},
  };
}

std::vector<Rule> gated_shared_expert() {
  return {
      {"decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight",
       {"model.layers.{layer}.mlp.shared_expert.gate_proj.weight",
        "model.layers.{layer}.mlp.shared_expert.up_proj.weight"},
       Transform::gate_up},
      {"decoder.layers.{layer}.mlp.shared_experts.linear_fc2.weight",
       {"model.layers.{layer}.mlp.shared_expert.down_proj.weight"}},
      {"decoder.layers.{layer}.mlp.shared_experts.gate_weight",
       {"model.layers.{layer}.mlp.shared_expert_gate.weight"}},
  };
}

std::vector<Rule> router_bias() {
  return {
      {.megatron = "decoder.layers.{layer}.mlp.router.expert_bias",
       .hugging_face = {"model.layers.{layer}.mlp.gate.e_score_correction_bias"}},
      {.megatron = "",
       .hugging_face = {"model.layers.{layer}.mlp.gate.e_score_correction_bias"},
       .transform = Transform::constant,
       .when = lacks_expert_bias,
       .shape = {[](const Architecture& a) { return a.experts; }},
       .fp32 = true,
       .value = 0},
  };
}

std::vector<Rule> mtp_layers() {
  return {
      {"mtp.layers.{mtp}.enorm.weight", {"model.layers.{layer}.enorm.weight"}},
      {"mtp.layers.{mtp}.hnorm.weight", {"model.layers.{layer}.hnorm.weight"}},
      {"mtp.layers.{mtp}.eh_proj.weight", {"model.layers.{layer}.eh_proj.weight"}},
      {"mtp.layers.{mtp}.final_layernorm.weight", {"model.layers.{layer}.shared_head.norm.weight"}},
      {.megatron = "embedding.word_embeddings.weight",
       .hugging_face = {"model.layers.{layer}.embed_tokens.weight"},
       .transform = Transform::vocabulary,
       .copies = true},
      {.megatron = "output_layer.weight",
       .hugging_face = {"model.layers.{layer}.shared_head.head.weight"},
       .transform = Transform::vocabulary,
       .copies = true},
      {.megatron = "embedding.word_embeddings.weight",
       .hugging_face = {"model.layers.{layer}.shared_head.head.weight"},
       .transform = Transform::vocabulary,
       .copies = true,
       .when = is_tied},
  };
}

std::vector<Rule> head() {
  return {
      {"decoder.final_layernorm.weight", {"model.norm.weight"}},
      {"output_layer.weight", {"lm_head.weight"}, Transform::vocabulary},
  };
}

}  // namespace ferry::shared
