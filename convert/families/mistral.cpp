// Mistral 7B (transformers/models/mistral): Llama with windowed attention in all layers.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family mistral_family() {
  return {
      .name = "mistral",
      .class_name = "MistralForCausalLM",
      .rules = shared::join(
          {shared::embedding(), shared::attention(), shared::dense_mlp(), shared::head()}),
      .config = shared::join(
          {shared::llama_config(),
           {codec::or_null(codec::plain("head_dim", &Architecture::head_dim)), codec::window()}}),
      .defaults = R"({"num_key_value_heads": 8, "sliding_window": 4096})"};
}

}  // namespace ferry
