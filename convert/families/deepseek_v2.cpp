// DeepSeek-V2 (transformers/models/deepseek_v2): latent attention, dense first layers, experts with
// a softmax router whose weights are not renormalised.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family deepseek_v2_family() {
  using A = Architecture;
  Family family;
  family.name = "deepseek_v2";
  family.class_name = "DeepseekV2ForCausalLM";
  family.traits.mla = Has::yes;
  family.traits.moe = Has::yes;
  family.traits.dense_layers = Has::either;
  family.traits.shared_expert = Has::yes;
  family.rules =
      shared::rules({shared::embedding(), shared::latent_attention(), shared::dense_mlp(),
                     shared::experts(), shared::shared_experts(), shared::head()});
  family.fields =
      shared::join<ConfigField>(shared::join(shared::config_fields(), shared::latent_fields()),
                                {{"moe_intermediate_size", &A::expert_ffn},
                                 {"n_routed_experts", &A::experts},
                                 {"num_experts_per_tok", &A::experts_per_token},
                                 {"aux_loss_alpha", &A::aux_loss_coeff}});
  family.numbers = shared::latent_numbers();
  family.write_config = [](const A& a, nlohmann::json& config, std::vector<std::string>&) {
    shared::write_latent(a, config);
    config["mlp_bias"] = false;
    config["norm_topk_prob"] = false;
    config["scoring_func"] = "softmax";
    config["topk_method"] = shared::limits_groups(a) ? "group_limited_greedy" : "greedy";
  };
  family.differences = [](const A& a, std::vector<std::string>& warnings) {
    shared::warn_of_latent(a, {"deepseek_v2", 1, "the best one"}, warnings);
  };
  family.read_config = [](nlohmann::json& config, A& a) {
    shared::read_latent(config, a);
    config["topk_method"] = a.router_groups > 0 ? "group_limited_greedy" : "greedy";
  };
  family.defaults = R"({"q_lora_rank": 1536, "first_k_dense_replace": 0, "n_shared_experts": 2,
                        "topk_method": "greedy", "moe_layer_freq": 1})";
  family.objections = [](const A& a, std::vector<std::string>& reasons) {
    shared::object_latent(a, "deepseek_v2", reasons);
    shared::object_router(a, "deepseek_v2", false, reasons);
    shared::object_uneven_heads(a, "deepseek_v2", reasons);
  };
  return family;
}

}  // namespace ferry
