// MiMo-7B (XiaomiMiMo's own code loads it): Qwen2 with MTP layers, whose projection takes the
// hidden state before the embedding.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family mimo_family() {
  Family family = qwen2_family();
  family.name = "mimo";
  family.class_name = "MiMoForCausalLM";
  const std::vector<Rule> mtp_layers = {
      {"mtp.layers.{mtp}.enorm.weight", {"model.mtp_layers.{mtp}.token_layernorm.weight"}},
      {"mtp.layers.{mtp}.hnorm.weight", {"model.mtp_layers.{mtp}.hidden_layernorm.weight"}},
      {"mtp.layers.{mtp}.eh_proj.weight",
       {"model.mtp_layers.{mtp}.input_proj.weight"},
       Transform::swap_halves},
      {"mtp.layers.{mtp}.final_layernorm.weight",
       {"model.mtp_layers.{mtp}.final_layernorm.weight"}},
  };
  family.rules = shared::join(
      {shared::embedding(), shared::attention(), shared::dense_mlp(), mtp_layers, shared::head()});
  family.config = shared::join(
      {family.config,
       {codec::constant("attention_bias", true), codec::mtp_layers("num_nextn_predict_layers")}});
  family.defaults = R"({"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28,
                        "attention_bias": true})";
  family.mtp_prefix = "model.mtp_layers.{mtp}.";
  return family;
}

}  // namespace ferry
