// DeepSeek-V3 and R1 (transformers/models/deepseek_v3): as V2, with a sigmoid router that has a
// bias and renormalises, and layers that predict further tokens, stored after the last layer.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

bool lacks_expert_bias(const Architecture& a, int64_t layer) {
  return a.is_moe(layer) && !a.expert_bias;
}
bool is_tied(const Architecture& a, int64_t) { return a.tied; }

std::vector<Rule> expert_bias() {
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

// Hugging Face repeats the embedding and the output layer in each prediction layer.
std::vector<Rule> prediction_layers() {
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

void write_deepseek_v3(const Architecture& a, nlohmann::json& config,
                       std::vector<std::string>& warnings) {
  shared::write_latent(a, config);
  config["rope_interleave"] = true;
  config["ep_size"] = 1;
  constexpr int64_t kKnownDepth = 61;  // of DeepSeek-V3, the only one that transformers looks for
  if (a.mtp_layers > 0 && a.layers != kKnownDepth) {
    warnings.push_back(fmt::format(
        "transformers looks for prediction layers at layer {} only: it will call those of this "
        "model, from layer {} on, unexpected and ignore them",
        kKnownDepth, a.layers));
  }
  if (a.experts == 0) return;
  config["norm_topk_prob"] = a.experts_per_token > 1;
  config["scoring_func"] = "sigmoid";
  config["topk_method"] = "noaux_tc";
}

// transformers drops the prediction layers, but not their number, when it saves a model.
void look_for_optional_tensors(const std::function<bool(const std::string&)>& has,
                               Architecture& a) {
  const auto in_layer = [&](int64_t layer, std::string_view name) {
    return has(fmt::format("model.layers.{}.{}", layer, name));
  };
  if (!in_layer(a.layers, "eh_proj.weight")) a.mtp_layers = 0;
  a.expert_bias = false;  // where one layer has it, all others must
  for (int64_t layer = 0; a.experts > 0 && layer < a.layers && !a.expert_bias; ++layer) {
    a.expert_bias = in_layer(layer, "mlp.gate.e_score_correction_bias");
  }
}

}  // namespace

Family deepseek_v3_family() {
  using A = Architecture;
  Family family;
  family.name = "deepseek_v3";
  family.class_name = "DeepseekV3ForCausalLM";
  family.traits.mla = Has::yes;
  family.traits.moe = Has::either;
  family.traits.dense_layers = Has::either;
  family.traits.shared_expert = Has::yes;
  family.traits.expert_bias = Has::either;
  family.traits.mtp = Has::either;
  family.traits.scores = {RouterScore::sigmoid};
  family.rules = shared::rules({shared::embedding(), shared::latent_attention(),
                                shared::dense_mlp(), shared::experts(), expert_bias(),
                                shared::shared_experts(), prediction_layers(), shared::head()});
  family.fields =
      shared::join<ConfigField>(shared::join(shared::config_fields(), shared::latent_fields()),
                                {{"moe_intermediate_size", &A::expert_ffn},
                                 {"n_routed_experts", &A::experts},
                                 {"num_experts_per_tok", &A::experts_per_token},
                                 {"num_nextn_predict_layers", &A::mtp_layers},
                                 {"aux_loss_alpha", &A::aux_loss_coeff}});
  family.numbers = shared::latent_numbers();
  family.write_config = write_deepseek_v3;
  family.differences = [](const A& a, std::vector<std::string>& warnings) {
    shared::warn_of_latent(a, {"deepseek_v3", 2, "that of two"}, warnings);
  };
  family.read_config = shared::read_latent;
  family.look = look_for_optional_tensors;
  family.defaults = R"({"q_lora_rank": 1536, "first_k_dense_replace": 3, "n_shared_experts": 1,
                        "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
                        "num_experts_per_tok": 8, "moe_layer_freq": 1, "rope_interleave": true,
                        "norm_topk_prob": true})";
  family.objections = [](const A& a, std::vector<std::string>& reasons) {
    shared::object_latent(a, "deepseek_v3", reasons);
  };
  return family;
}

}  // namespace ferry
