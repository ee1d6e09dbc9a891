// Mixtral (transformers/models/mixtral): Mistral with experts in every layer. Files keep the names
// w1 (gate), w2 (down) and w3 (up) of each expert.
#include <nlohmann/json.hpp>

#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

std::vector<Rule> mixtral_experts() {
  return {
      {"decoder.layers.{layer}.pre_mlp_layernorm.weight",
       {"model.layers.{layer}.post_attention_layernorm.weight"}},
      {"decoder.layers.{layer}.mlp.router.weight",
       {"model.layers.{layer}.block_sparse_moe.gate.weight"}},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc1.weight",
       {"model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight",
        "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"},
       Transform::gate_up},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc2.weight",
       {"model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"}},
  };
}

}  // namespace

Family mixtral_family() {
  using A = Architecture;
  Family family;
  family.name = "mixtral";
  family.class_name = "MixtralForCausalLM";
  family.traits.moe = Has::yes;
  family.traits.window = Has::either;
  family.rules =
      shared::rules({shared::embedding(), shared::attention(), mixtral_experts(), shared::head()});
  family.fields = shared::join<ConfigField>(shared::config_fields(),
                                            {{"head_dim", &A::head_dim},
                                             {"intermediate_size", &A::expert_ffn},
                                             {"num_local_experts", &A::experts},
                                             {"num_experts_per_tok", &A::experts_per_token},
                                             {"router_aux_loss_coef", &A::aux_loss_coeff}});
  family.numbers = shared::window_number();
  family.write_config = [](const A& a, nlohmann::json& config, std::vector<std::string>&) {
    shared::write_window(a, config);
  };
  family.read_config = shared::read_window;
  family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
                        "num_experts_per_tok": 2, "router_aux_loss_coef": 0.001})";
  family.spellings = {{".block_sparse_moe.", ".mlp."}};
  family.objections = [](const A& a, std::vector<std::string>& reasons) {
    shared::object_router(a, "mixtral", true, reasons);
    shared::object_partial_window(a, "mixtral", reasons);
  };
  return family;
}

}  // namespace ferry
