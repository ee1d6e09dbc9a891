// Qwen3-MoE (transformers/models/qwen3_moe): Qwen3 with experts, none of them shared.
#include <nlohmann/json.hpp>

#include "convert/config_value.h"
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family qwen3_moe_family() {
  using A = Architecture;
  Family family;
  family.name = "qwen3_moe";
  family.class_name = "Qwen3MoeForCausalLM";
  family.traits.moe = Has::yes;
  family.traits.dense_layers = Has::either;
  family.traits.qk_norm = Has::yes;
  family.traits.window = Has::either;
  family.rules = shared::rules({shared::embedding(), shared::attention(), shared::dense_mlp(),
                                shared::experts(), shared::head()});
  family.fields = shared::join<ConfigField>(
      shared::config_fields(), {{"head_dim", &A::head_dim},
                                {"moe_intermediate_size", &A::expert_ffn},
                                {"num_experts", &A::experts},
                                {"num_local_experts", &A::experts},  // as transformers 5 saves it
                                {"num_experts_per_tok", &A::experts_per_token},
                                {"router_aux_loss_coef", &A::aux_loss_coeff}});
  family.numbers =
      shared::join<ConfigNumber>(shared::layer_window_numbers(), shared::dense_layer_number());
  family.write_config = [](const A& a, nlohmann::json& config, std::vector<std::string>&) {
    config["attention_bias"] = false;
    config["norm_topk_prob"] = !a.router_pre_softmax;
    config["use_sliding_window"] = a.window > 0;
    shared::write_window(a, config);
    shared::write_dense_layers(a, config);
  };
  family.read_config = [](nlohmann::json& config, A& a) {
    a.router_pre_softmax = !boolean_of(config, "norm_topk_prob", false);
    config.erase("max_window_layers");  // the class has the window in all layers, or in none
    shared::read_layer_windows(config, a);
    shared::read_dense_layers(config, a);
  };
  family.defaults = R"({"num_key_value_heads": 4, "norm_topk_prob": false,
                        "num_experts_per_tok": 8, "router_aux_loss_coef": 0.001})";
  family.objections = [](const A& a, std::vector<std::string>& reasons) {
    shared::object_partial_window(a, "qwen3_moe", reasons);
  };
  return family;
}

}  // namespace ferry
