// MiniMax-M2, 2.5 and 2.7 (transformers/models/minimax_m2): a mixture in every layer, whose router
// has a bias, and norms over all heads of queries and keys at once. Files keep Mixtral's names.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

using A = Architecture;

// The hub's files give the rotated part of a head in elements.
ConfigRow rotary_elements() {
  return {
      .keys = {"rotary_dim"},
      .nullable = {"rotary_dim"},
      .numbers = {{.key = "rotary_dim", .least = 1, .most = kMaxHeads}},
      .read =
          [](nlohmann::json& config, A& a) {
            const auto given = config.find("rotary_dim");
            if (given == config.end()) return;
            if (given->is_number_integer() && a.head_dim > 0 &&
                !config.contains("partial_rotary_factor")) {
              config["partial_rotary_factor"] =
                  given->get<double>() / static_cast<double>(a.head_dim);
            }
            config.erase("rotary_dim");
          },
      .write = [](const A& a, nlohmann::json& config) { config["rotary_dim"] = a.rotary_part(); }};
}

}  // namespace

Family minimax_m2_family() {
  Family family = mixtral_family();
  family.name = "minimax_m2";
  family.class_name = "MiniMaxM2ForCausalLM";
  for (Rule& rule : shared::router_bias()) {
    rule.hugging_face = {"model.layers.{layer}.block_sparse_moe.e_score_correction_bias"};
    family.rules.push_back(std::move(rule));
  }
  family.config = shared::join(
      {shared::llama_config(),
       {codec::plain("head_dim", &A::head_dim), codec::implied(&A::qk_norm, true),
        codec::implied(&A::norms_all_heads, true), rotary_elements(), codec::partial_rotary(),
        codec::plain("intermediate_size", &A::expert_ffn), codec::experts("num_local_experts"),
        codec::plain("num_experts_per_tok", &A::experts_per_token),
        codec::plain("router_aux_loss_coef", &A::aux_loss_coeff),
        codec::implied(&A::router_score, RouterScore::sigmoid), codec::several_experts(),
        codec::router_bias(), codec::constant("scoring_func", "sigmoid"),
        codec::constant("use_qk_norm", true), codec::constant("qk_norm_type", "per_layer")}});
  family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 5000000.0,
                        "num_experts_per_tok": 8, "router_aux_loss_coef": 0.001})";
  return family;
}

}  // namespace ferry
