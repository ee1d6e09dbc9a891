// Phi-4 and Phi-3 (transformers/models/phi3): Llama with queries, keys and values in one tensor,
// gate and up in another.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

std::vector<Rule> phi3_layers() {
  return {
      {"decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight",
       {"model.layers.{layer}.input_layernorm.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_qkv.weight",
       {"model.layers.{layer}.self_attn.qkv_proj.weight"},
       Transform::qkv},
      {"decoder.layers.{layer}.self_attention.linear_proj.weight",
       {"model.layers.{layer}.self_attn.o_proj.weight"}},
      {"decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight",
       {"model.layers.{layer}.post_attention_layernorm.weight"}},
      {"decoder.layers.{layer}.mlp.linear_fc1.weight",
       {"model.layers.{layer}.mlp.gate_up_proj.weight"},
       Transform::gate_up},
      {"decoder.layers.{layer}.mlp.linear_fc2.weight",
       {"model.layers.{layer}.mlp.down_proj.weight"}},
  };
}

}  // namespace

Family phi3_family() {
  using A = Architecture;
  return {.name = "phi3",
          .class_name = "Phi3ForCausalLM",
          .rules = shared::join({shared::embedding(), phi3_layers(), shared::head()}),
          .config = shared::join(
              {shared::llama_config(),
               {codec::unscaled_positions(), codec::partial_rotary(), codec::unusual_head_dim(),
                codec::window(), codec::plain("embd_pdrop", &A::hidden_dropout),
                codec::plain("resid_pdrop", &A::hidden_dropout)}}),
          .defaults = R"({"num_key_value_heads": 32, "rms_norm_eps": 1e-5,
                          "partial_rotary_factor": 1.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0})"};
}

}  // namespace ferry
