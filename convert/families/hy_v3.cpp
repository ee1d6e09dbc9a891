// Hy3 (transformers/models/hy_v3): attention as Qwen3's, a sigmoid router with a bias, a shared
// expert. Names are those of the hub; transformers calls some modules otherwise while it runs.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

std::vector<Rule> hy_v3_mixture() {
  std::vector<Rule> rules = shared::experts();
  rules[1].hugging_face = {"model.layers.{layer}.mlp.router.gate.weight"};
  for (Rule& rule : shared::router_bias()) {
    rule.hugging_face = {"model.layers.{layer}.mlp.expert_bias"};
    rules.push_back(std::move(rule));
  }
  rules.push_back({"decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight",
                   {"model.layers.{layer}.mlp.shared_mlp.gate_proj.weight",
                    "model.layers.{layer}.mlp.shared_mlp.up_proj.weight"},
                   Transform::gate_up});
  rules.push_back({"decoder.layers.{layer}.mlp.shared_experts.linear_fc2.weight",
                   {"model.layers.{layer}.mlp.shared_mlp.down_proj.weight"}});
  return rules;
}

}  // namespace

Family hy_v3_family() {
  using A = Architecture;
  return {.name = "hy_v3",
          .class_name = "HYV3ForCausalLM",
          .rules = shared::join({shared::embedding(), shared::attention(), shared::dense_mlp(),
                                 hy_v3_mixture(), shared::head()}),
          .config = shared::join(
              {{codec::mixture_kinds(1)},
               shared::llama_config(),
               {codec::plain("head_dim", &A::head_dim), codec::implied(&A::qk_norm, true),
                codec::constant("attention_bias", false), codec::constant("mlp_bias", false),
                codec::plain("moe_intermediate_size", &A::expert_ffn),
                codec::plain("num_experts", &A::experts),
                codec::plain("num_experts_per_tok", &A::experts_per_token),
                codec::first_dense_layers("num_experts"),
                codec::shared_expert_count("num_shared_experts"),
                codec::one_at_zero("router_scaling_factor", &A::router_scale),
                codec::implied(&A::router_score, RouterScore::sigmoid), codec::several_experts(),
                codec::router_bias(), codec::indifferent("enable_moe_fp32_combine", true)}}),
          .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                      "rope_theta": 11158840.0, "num_experts": 192, "num_experts_per_tok": 8,
                      "num_shared_experts": 1, "moe_intermediate_size": 1536,
                      "router_scaling_factor": 2.826, "initializer_range": 0.006})",
          .spellings = {{".mlp.router.gate.", ".mlp.gate."},
                        {".mlp.expert_bias", ".mlp.e_score_correction_bias"},
                        {".mlp.shared_mlp.", ".mlp.shared_experts."}}};
}

}  // namespace ferry
