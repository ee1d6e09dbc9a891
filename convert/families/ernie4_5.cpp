// Ernie 4.5's dense models (transformers/models/ernie4_5): Llama that rotates pairs of elements
// next to each other.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family ernie4_5_family() {
  using A = Architecture;
  return {.name = "ernie4_5",
          .class_name = "Ernie4_5ForCausalLM",
          .rules = shared::join(
              {shared::embedding(), shared::attention(), shared::dense_mlp(), shared::head()}),
          .config = shared::join({shared::llama_config(),
                                  {codec::or_null(codec::plain("head_dim", &A::head_dim)),
                                   codec::plain("use_bias", &A::linear_bias),
                                   codec::implied(&A::rope_interleaved, true)}}),
          .defaults = R"({"num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                          "tie_word_embeddings": true, "head_dim": 128, "use_bias": false})"};
}

}  // namespace ferry
