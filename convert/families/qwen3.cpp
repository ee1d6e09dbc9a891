// Qwen3 (transformers/models/qwen3): Llama with norms on queries and keys of each head.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family qwen3_family() {
  using A = Architecture;
  return {.name = "qwen3",
          .class_name = "Qwen3ForCausalLM",
          .rules = shared::join(
              {shared::embedding(), shared::attention(), shared::dense_mlp(), shared::head()}),
          .config = shared::join(
              {shared::llama_config(),
               {codec::implied(&A::qk_norm, true), codec::plain("head_dim", &A::head_dim),
                codec::constant("attention_bias", false), codec::layer_windows()}}),
          .defaults = R"({"num_key_value_heads": 32, "head_dim": 128, "sliding_window": 4096,
                          "max_window_layers": 28})",
          .torchtitan = TitanPairs::halves};
}

}  // namespace ferry
