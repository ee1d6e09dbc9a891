// Qwen2 and Qwen2.5 (transformers/models/qwen2): Llama with biases on queries, keys and values.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family qwen2_family() {
  return {.name = "qwen2",
          .class_name = "Qwen2ForCausalLM",
          .rules = shared::join(
              {shared::embedding(), shared::attention(), shared::dense_mlp(), shared::head()}),
          .config = shared::join({shared::llama_config(),
                                  {codec::implied(&Architecture::qkv_bias, true),
                                   codec::unusual_head_dim(), codec::layer_windows()}}),
          .defaults = R"({"num_key_value_heads": 32, "sliding_window": 4096,
                          "max_window_layers": 28})"};
}

}  // namespace ferry
