// The families, one function a file.
#pragma once

#include <deque>

#include "convert/model/family.h"

namespace ferry {

Family apertus_family();
Family deepseek_v2_family();
Family deepseek_v3_family();
Family deepseek_v32_family();
Family bailing_moe_v2_family();
Family ernie4_5_family();
Family exaone4_family();
Family gemma3_family();
Family gemma4_family();
Family hy_v3_family();
Family mimo_family();
Family minimax_m2_family();
Family ministral3_family();
Family qwen2_5_vl_family();
Family qwen3_vl_family();
Family qwen3_vl_moe_family();
Family glm4_moe_family();
Family glm4_moe_lite_family();
Family glm_moe_dsa_family();
Family gpt2_family();
Family gpt_oss_family();
Family kimi_k2_family();
Family llama_family();
Family mistral_family();
Family mixtral_family();
Family nemotron_h_family();
Family olmo2_family();
Family olmo3_family();
Family olmoe_family();
Family phi3_family();
Family qwen2_family();
Family qwen2_moe_family();
Family qwen3_family();
Family qwen3_moe_family();
Family qwen3_next_family();
Family qwen3_5_family();
Family qwen3_5_moe_family();
Family seed_oss_family();
Family smollm3_family();

std::deque<Family> built_in_families();

}  // namespace ferry
