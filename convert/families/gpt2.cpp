// GPT-2 (transformers/models/gpt2): learned positions, LayerNorm, biases everywhere, and linear
// layers stored as [in, out].
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ckpt/base/checked.h"
#include "convert/config_json.h"
#include "convert/config_value.h"
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

}  // namespace

Family gpt2_family() {
  using A = Architecture;
  Family family;
  family.name = "gpt2";
  family.class_name = "GPT2LMHeadModel";
  family.traits.norm = Norm::layer;
  family.traits.activations = {Activation::gelu_tanh, Activation::gelu};
  family.traits.positions = Positions::learned;
  family.traits.linear_bias = Has::yes;
  family.traits.grouped_queries = Has::no;
  family.rules = gpt2_rules();
  family.fields = {
      {"vocab_size", &A::vocab},
      {"n_embd", &A::hidden},
      {"n_inner", &A::ffn},
      {"n_layer", &A::layers},
      {"n_head", &A::heads},
      {"n_positions", &A::positions},
      {"layer_norm_epsilon", &A::norm_eps},
      {"initializer_range", &A::init_std},
      {"attn_pdrop", &A::attention_dropout},
      {"resid_pdrop", &A::hidden_dropout},
      {"embd_pdrop", &A::hidden_dropout},
      {"tie_word_embeddings", &A::tied},
  };
  family.write_config = [](const A& a, nlohmann::json& config, std::vector<std::string>&) {
    config["activation_function"] = a.activation == Activation::gelu ? "gelu" : "gelu_new";
    config["n_ctx"] = a.positions;
    config["scale_attn_weights"] = true;
  };
  family.read_config = [](nlohmann::json& config, A& a) {
    a.linear_bias = true;
    a.activation = activation_of(text_of(config, "activation_function", ""));
    if (a.activation == Activation::gelu_tanh) config["activation_function"] = "gelu_new";
    if (a.ffn == 0) a.ffn = checked_multiply<int64_t>(4, a.hidden, "n_embd");
    config["n_inner"] = a.ffn;
  };
  family.defaults = R"({"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
                        "tie_word_embeddings": true, "attn_pdrop": 0.1, "resid_pdrop": 0.1,
                        "embd_pdrop": 0.1, "scale_attn_by_inverse_layer_idx": false,
                        "add_cross_attention": false})";
  family.base_prefix = "transformer.";
  family.buffers = {".attn.bias", ".attn.masked_bias"};
  family.objections = [](const A& a, std::vector<std::string>& reasons) {
    if (a.heads * a.head_dim != a.hidden) {
      reasons.push_back(fmt::format("{} heads of {} are not the hidden size {}, as in gpt2",
                                    a.heads, a.head_dim, a.hidden));
    }
  };
  return family;
}

}  // namespace ferry
