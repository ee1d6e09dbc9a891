// Seed-OSS (transformers/models/seed_oss): Llama whose queries, keys and values may have biases of
// their own.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family seed_oss_family() {
  using A = Architecture;
  return {.name = "seed_oss",
          .class_name = "SeedOssForCausalLM",
          .rules = shared::join(
              {shared::embedding(), shared::attention(), shared::dense_mlp(), shared::head()}),
          .config = shared::join(
              {shared::llama_config(),
               {codec::or_null(codec::plain("head_dim", &A::head_dim)),
                codec::plain("attention_out_bias", &A::linear_bias),
                codec::plain("mlp_bias", &A::linear_bias), codec::qkv_bias("attention_bias"),
                codec::plain("residual_dropout", &A::hidden_dropout)}}),
          .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "attention_bias": true,
                          "attention_out_bias": false, "mlp_bias": false,
                          "attention_dropout": 0.1, "residual_dropout": 0.1})"};
}

}  // namespace ferry
