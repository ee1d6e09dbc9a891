// GPT-2 (transformers/models/gpt2): learned positions, LayerNorm, biases everywhere, and linear
// layers stored as [in, out].
#include "ckpt/base/checked.h"
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

std::vector<Rule> gpt2_rules() {
  return {
      {"embedding.word_embeddings.weight", {"transformer.wte.weight"}, Transform::vocabulary},
      {"embedding.position_embeddings.weight", {"transformer.wpe.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight",
       {"transformer.h.{layer}.ln_1.weight"}},
      {"decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_bias",
       {"transformer.h.{layer}.ln_1.bias"}},
      {"decoder.layers.{layer}.self_attention.linear_qkv.weight",
       {"transformer.h.{layer}.attn.c_attn.weight"},
       Transform::qkv_transpose},
      {"decoder.layers.{layer}.self_attention.linear_qkv.bias",
       {"transformer.h.{layer}.attn.c_attn.bias"},
       Transform::qkv_transpose},
      {"decoder.layers.{layer}.self_attention.linear_proj.weight",
       {"transformer.h.{layer}.attn.c_proj.weight"},
       Transform::transpose},
      {"decoder.layers.{layer}.self_attention.linear_proj.bias",
       {"transformer.h.{layer}.attn.c_proj.bias"}},
      {"decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight",
       {"transformer.h.{layer}.ln_2.weight"}},
      {"decoder.layers.{layer}.mlp.linear_fc1.layer_norm_bias",
       {"transformer.h.{layer}.ln_2.bias"}},
      {"decoder.layers.{layer}.mlp.linear_fc1.weight",
       {"transformer.h.{layer}.mlp.c_fc.weight"},
       Transform::transpose},
      {"decoder.layers.{layer}.mlp.linear_fc1.bias", {"transformer.h.{layer}.mlp.c_fc.bias"}},
      {"decoder.layers.{layer}.mlp.linear_fc2.weight",
       {"transformer.h.{layer}.mlp.c_proj.weight"},
       Transform::transpose},
      {"decoder.layers.{layer}.mlp.linear_fc2.bias", {"transformer.h.{layer}.mlp.c_proj.bias"}},
      {"decoder.final_layernorm.weight", {"transformer.ln_f.weight"}},
      {"decoder.final_layernorm.bias", {"transformer.ln_f.bias"}},
      {"output_layer.weight", {"lm_head.weight"}, Transform::vocabulary},
  };
}

// Four times the hidden size unless given.
ConfigRow inner_size() {
  ConfigRow row = codec::or_null(codec::plain("n_inner", &Architecture::ffn));
  row.read = [read = row.read](nlohmann::json& config, Architecture& a) {
    read(config, a);
    if (a.ffn == 0) a.ffn = checked_multiply<int64_t>(4, a.hidden, "n_embd");
    config["n_inner"] = a.ffn;
  };
  return row;
}

ConfigRow context_size() {
  return {.keys = {"n_ctx"}, .write = [](const Architecture& a, nlohmann::json& config) {
            config["n_ctx"] = a.positions;
          }};
}

}  // namespace

Family gpt2_family() {
  using A = Architecture;
  return {.name = "gpt2",
          .class_name = "GPT2LMHeadModel",
          .rules = gpt2_rules(),
          .config = {codec::implied(&A::norm, Norm::layer),
                     codec::implied(&A::position_kind, Positions::learned),
                     codec::implied(&A::linear_bias, true), codec::plain("vocab_size", &A::vocab),
                     codec::plain("n_embd", &A::hidden), inner_size(),
                     codec::plain("n_layer", &A::layers), codec::plain("n_head", &A::heads),
                     codec::plain("n_positions", &A::positions), context_size(),
                     codec::plain("layer_norm_epsilon", &A::norm_eps),
                     codec::plain("initializer_range", &A::init_std),
                     codec::plain("attn_pdrop", &A::attention_dropout),
                     codec::plain("resid_pdrop", &A::hidden_dropout),
                     codec::plain("embd_pdrop", &A::hidden_dropout),
                     codec::plain("tie_word_embeddings", &A::tied),
                     codec::activation({Activation::gelu_tanh, Activation::gelu},
                                       "activation_function"),
                     codec::constant("scale_attn_weights", true)},
          .defaults = R"({"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
                          "tie_word_embeddings": true, "attn_pdrop": 0.1, "resid_pdrop": 0.1,
                          "embd_pdrop": 0.1, "scale_attn_by_inverse_layer_idx": false,
                          "add_cross_attention": false})",
          .base_prefix = "transformer.",
          .buffers = {".attn.bias", ".attn.masked_bias"}};
}

}  // namespace ferry
