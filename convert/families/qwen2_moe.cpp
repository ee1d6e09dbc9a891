// Qwen1.5-MoE and Qwen2-MoE (transformers/models/qwen2_moe): Qwen2 with experts and one shared
// expert that has a gate of its own.
#include <nlohmann/json.hpp>

#include "convert/config_value.h"
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

std::vector<Rule> shared_expert() {
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

}  // namespace

Family qwen2_moe_family() {
  using A = Architecture;
  Family family;
  family.name = "qwen2_moe";
  family.class_name = "Qwen2MoeForCausalLM";
  family.traits.moe = Has::yes;
  family.traits.dense_layers = Has::either;
  family.traits.qkv_bias = Has::yes;
  family.traits.shared_expert = Has::yes;
  family.traits.shared_gate = Has::yes;
  family.rules = shared::rules({shared::embedding(), shared::attention(), shared::dense_mlp(),
                                shared::experts(), shared_expert(), shared::head()});
  family.fields = shared::join<ConfigField>(shared::config_fields(),
                                            {{"moe_intermediate_size", &A::expert_ffn},
                                             {"shared_expert_intermediate_size", &A::shared_ffn},
                                             {"num_experts", &A::experts},
                                             {"num_experts_per_tok", &A::experts_per_token},
                                             {"router_aux_loss_coef", &A::aux_loss_coeff}});
  family.numbers =
      shared::join<ConfigNumber>(shared::head_dim_number(), shared::dense_layer_number());
  family.write_config = [](const A& a, nlohmann::json& config, std::vector<std::string>&) {
    shared::write_head_dim_if_unusual(a, config);
    config["norm_topk_prob"] = !a.router_pre_softmax;
    config["qkv_bias"] = true;
    config["use_sliding_window"] = false;
    shared::write_dense_layers(a, config);
  };
  family.read_config = [](nlohmann::json& config, A& a) {
    shared::read_head_dim(config, a);
    a.router_pre_softmax = !boolean_of(config, "norm_topk_prob", false);
    shared::read_dense_layers(config, a);
  };
  family.defaults = R"({"num_key_value_heads": 16, "norm_topk_prob": false, "qkv_bias": true,
                        "num_experts_per_tok": 4, "router_aux_loss_coef": 0.001})";
  return family;
}

}  // namespace ferry
