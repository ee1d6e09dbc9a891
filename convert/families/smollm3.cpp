// SmolLM3 (transformers/models/smollm3): Llama of which every fourth layer has no positions.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family smollm3_family() {
  using A = Architecture;
  return {
      .name = "smollm3",
      .class_name = "SmolLM3ForCausalLM",
      .rules = shared::join(
          {shared::embedding(), shared::attention(), shared::dense_mlp(), shared::head()}),
      .config = shared::join(
          {shared::llama_config(),
           {codec::plain("head_dim", &A::head_dim), codec::plain("attention_bias", &A::linear_bias),
            codec::plain("mlp_bias", &A::linear_bias), codec::no_rope_layers(),
            codec::constant("use_sliding_window", false)}}),
      .defaults = R"({"num_key_value_heads": 4, "rope_theta": 2e6, "tie_word_embeddings": true,
                          "no_rope_layer_interval": 4})"};
}

}  // namespace ferry
