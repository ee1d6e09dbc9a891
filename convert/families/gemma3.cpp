// Gemma 3's language models (transformers/models/gemma3): norms, stored less 1, of what attention
// and MLP take and of what they give; five layers with a window to one without, each with a rotary
// base of its own; embeddings times the root of their size.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family gemma3_family() {
  using A = Architecture;
  std::vector<Rule> mlp = shared::dense_mlp();
  mlp[0].hugging_face = {"model.layers.{layer}.pre_feedforward_layernorm.weight"};
  return {
      .name = "gemma3_text",
      .class_name = "Gemma3ForCausalLM",
      .rules = shared::join({shared::embedding(), shared::attention(), shared::output_norms(),
                             std::move(mlp), shared::head()}),
      .config = shared::join(
          {shared::llama_config_without_rope(std::nullopt),
           {codec::plain("head_dim", &A::head_dim), codec::implied(&A::qk_norm, true),
            codec::implied(&A::zero_centered_norms, true), codec::implied(&A::output_norms, true),
            codec::implied(&A::scales_embedding, true), codec::constant("attention_bias", false),
            codec::or_null(codec::constant("attn_logit_softcapping", nullptr)),
            codec::or_null(codec::constant("final_logit_softcapping", nullptr)),
            codec::or_null(codec::constant("use_bidirectional_attention", false)),
            codec::attention_scalar(),
            codec::activation({Activation::tanh_geglu}, "hidden_activation"),
            codec::window_by_kind(6, "sliding_window_pattern"), codec::rope_by_kind(10000)}}),
      .defaults = R"({"num_key_value_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256,
                      "hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1000000.0,
                      "sliding_window": 4096, "tie_word_embeddings": true})",
      .differences = shared::warn_of_output_norms,
      .zero_centered_norms = true};
}

}  // namespace ferry
