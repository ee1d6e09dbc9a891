// OLMo 2, 3 and OLMoE (transformers/models/{olmo2,olmo3,olmoe}): norms over all heads of queries
// and keys at once; the dense models norm what attention and MLP give, not what they take.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

using A = Architecture;

std::vector<ConfigRow> norms_of_olmo() {
  return {codec::implied(&A::qk_norm, true), codec::implied(&A::norms_all_heads, true),
          codec::constant("attention_bias", false)};
}

}  // namespace

Family olmo2_family() {
  return {.name = "olmo2",
          .class_name = "Olmo2ForCausalLM",
          .rules = shared::join({shared::embedding(), shared::attention(), shared::output_norms(),
                                 shared::dense_mlp(), shared::head()}),
          .config = shared::join({shared::llama_config(),
                                  norms_of_olmo(),
                                  {codec::even_heads(), codec::implied(&A::input_norms, false),
                                   codec::implied(&A::output_norms, true)}}),
          .defaults = R"({"rms_norm_eps": 1e-5})"};
}

Family olmo3_family() {
  Family family = olmo2_family();
  family.name = "olmo3";
  family.class_name = "Olmo3ForCausalLM";
  family.config = shared::join({shared::llama_config_without_rope(),
                                norms_of_olmo(),
                                {codec::even_heads(), codec::implied(&A::input_norms, false),
                                 codec::implied(&A::output_norms, true), codec::window_by_kind(4),
                                 codec::rope_by_kind(500000)}});
  family.defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 500000.0, "sliding_window": 4096})";
  return family;
}

Family olmoe_family() {
  return {.name = "olmoe",
          .class_name = "OlmoeForCausalLM",
          .rules = shared::join(
              {shared::embedding(), shared::attention(), shared::experts(), shared::head()}),
          .config = shared::join(
              {shared::llama_config(),
               norms_of_olmo(),
               {codec::even_heads(), codec::or_null(codec::constant("clip_qkv", nullptr)),
                codec::plain("intermediate_size", &A::expert_ffn), codec::experts("num_experts"),
                codec::plain("num_experts_per_tok", &A::experts_per_token),
                codec::plain("router_aux_loss_coef", &A::aux_loss_coeff),
                codec::renormalises("norm_topk_prob")}}),
          .defaults = R"({"rms_norm_eps": 1e-5, "num_experts_per_tok": 8, "norm_topk_prob": false,
                          "router_aux_loss_coef": 0.01})"};
}

}  // namespace ferry
