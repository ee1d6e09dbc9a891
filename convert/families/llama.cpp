// Llama 2, 3 and 3.1 (transformers/models/llama).
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family llama_family() {
  using A = Architecture;
  return {
      .name = "llama",
      .class_name = "LlamaForCausalLM",
      .rules = shared::join(
          {shared::embedding(), shared::attention(), shared::dense_mlp(), shared::head()}),
      .config = shared::join({shared::llama_config(),
                              {codec::or_null(codec::plain("head_dim", &A::head_dim)),
                               codec::plain("attention_bias", &A::linear_bias),
                               codec::plain("mlp_bias", &A::linear_bias), codec::even_heads()}}),
      .torchtitan = TitanPairs::adjacent};
}

}  // namespace ferry
