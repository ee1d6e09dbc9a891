#include "convert/families/list.h"

namespace ferry {

// The more special first. Where the files of two families differ in nothing but the class's name,
// a model is of the first: one without a window is llama rather than mistral, and deepseek_v3
// rather than kimi_k2.
std::deque<Family> built_in_families() {
  std::deque<Family> all;
  for (const auto make :
       {gpt2_family,          apertus_family,      deepseek_v3_family,    deepseek_v2_family,
        qwen2_moe_family,     qwen3_moe_family,    mixtral_family,        qwen3_family,
        qwen2_family,         llama_family,        mistral_family,        glm4_moe_family,
        seed_oss_family,      smollm3_family,      kimi_k2_family,        gpt_oss_family,
        glm4_moe_lite_family, deepseek_v32_family, glm_moe_dsa_family,    phi3_family,
        ernie4_5_family,      hy_v3_family,        bailing_moe_v2_family, ministral3_family,
        qwen3_vl_moe_family,  qwen3_vl_family,     qwen2_5_vl_family,     mimo_family,
        qwen3_next_family,    qwen3_5_moe_family,  qwen3_5_family,        nemotron_h_family,
        minimax_m2_family,    olmoe_family,        olmo2_family,          olmo3_family,
        exaone4_family,       gemma3_family,       gemma4_family}) {
    all.push_back(make());
  }
  return all;
}

}  // namespace ferry
