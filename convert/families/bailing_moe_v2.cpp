// Ling 2 and Ring 2 (inclusionAI's own code loads them): DeepSeek-V3's mixture with attention as
// GLM-4.5's, whose queries, keys and values are one tensor.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

std::vector<Rule> bailing_attention() {
  return {
      {"decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight",
       {"model.layers.{layer}.input_layernorm.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_qkv.weight",
       {"model.layers.{layer}.attention.query_key_value.weight"},
       Transform::qkv},
      {"decoder.layers.{layer}.self_attention.linear_qkv.bias",
       {"model.layers.{layer}.attention.query_key_value.bias"},
       Transform::qkv},
      {"decoder.layers.{layer}.self_attention.q_layernorm.weight",
       {"model.layers.{layer}.attention.query_layernorm.weight"}},
      {"decoder.layers.{layer}.self_attention.k_layernorm.weight",
       {"model.layers.{layer}.attention.key_layernorm.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_proj.weight",
       {"model.layers.{layer}.attention.dense.weight"}},
  };
}

std::vector<Rule> bailing_router_bias() {
  std::vector<Rule> rules = shared::router_bias();
  for (Rule& rule : rules) rule.hugging_face = {"model.layers.{layer}.mlp.gate.expert_bias"};
  return rules;
}

// Embedding and output layer are not repeated.
std::vector<Rule> bailing_mtp_layers() {
  return {
      {"mtp.layers.{mtp}.enorm.weight", {"model.layers.{layer}.enorm.weight"}},
      {"mtp.layers.{mtp}.hnorm.weight", {"model.layers.{layer}.hnorm.weight"}},
      {"mtp.layers.{mtp}.eh_proj.weight", {"model.layers.{layer}.eh_proj.weight"}},
      {"mtp.layers.{mtp}.final_layernorm.weight", {"model.layers.{layer}.final_layernorm.weight"}},
  };
}

}  // namespace

Family bailing_moe_v2_family() {
  using A = Architecture;
  return {.name = "bailing_moe_v2",
          .class_name = "BailingMoeV2ForCausalLM",
          .rules = shared::join({{{"embedding.word_embeddings.weight",
                                   {"model.word_embeddings.weight"},
                                   Transform::vocabulary}},
                                 bailing_attention(),
                                 shared::dense_mlp(),
                                 shared::experts(),
                                 bailing_router_bias(),
                                 shared::shared_experts(),
                                 bailing_mtp_layers(),
                                 shared::head()}),
          .config = shared::join({shared::llama_config(),
                                  {codec::plain("head_dim", &A::head_dim),
                                   codec::plain("use_qkv_bias", &A::qkv_bias),
                                   codec::constant("use_bias", false),
                                   codec::plain("use_qk_norm", &A::qk_norm),
                                   codec::partial_rotary(),
                                   codec::constant("norm_head", false),
                                   codec::constant("use_rmsnorm", true),
                                   codec::plain("moe_intermediate_size", &A::expert_ffn),
                                   codec::plain("num_experts", &A::experts),
                                   codec::plain("num_experts_per_tok", &A::experts_per_token),
                                   codec::first_dense_layers("num_experts"),
                                   codec::shared_expert_count("num_shared_experts"),
                                   codec::one_at_zero("routed_scaling_factor", &A::router_scale),
                                   codec::router_groups(),
                                   codec::implied(&A::router_score, RouterScore::sigmoid),
                                   codec::of_mixtures("score_function", "sigmoid"),
                                   codec::of_mixtures("moe_router_enable_expert_bias", true),
                                   codec::renormalises_chosen("norm_topk_prob"),
                                   codec::router_bias(),
                                   codec::mtp_layers("num_nextn_predict_layers")}}),
          .defaults = R"({"num_key_value_heads": 4, "rms_norm_eps": 1e-6, "use_qk_norm": true,
                      "use_qkv_bias": false, "use_bias": false, "partial_rotary_factor": 1.0,
                      "first_k_dense_replace": 0, "num_shared_experts": 1, "n_group": 8,
                      "topk_group": 4, "num_experts_per_tok": 8, "routed_scaling_factor": 2.5,
                      "norm_topk_prob": true, "norm_head": false, "use_rmsnorm": true})",
          .differences = [](const A& a, std::vector<std::string>& warnings) {
            shared::warn_of_groups(a, {"bailing_moe_v2", 2, "that of two"}, warnings);
          }};
}

}  // namespace ferry
