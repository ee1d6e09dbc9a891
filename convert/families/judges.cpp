#include "convert/families/judges.h"

#include <algorithm>
#include <iterator>

namespace ferry {
namespace {

constexpr std::string_view kMegatronLm = "Megatron-LM", kCore = "Megatron Core",
                           kBoth = "Megatron-LM, Megatron Core", kBridge = "Megatron Bridge",
                           kText = "transformers, with the vision model and without",
                           kRefused = "none: no Megatron program has such layers", kNone = "";

// tests/interop/checkpoints: check_logits.py for runs; check_megatron.py, check_core_logits.py,
// check_bridge.py and check_language_parts.py for models.
constexpr Judges kJudges[] = {
    {"apertus", "Megatron-LM (swiss-ai)", "Megatron-LM (swiss-ai)"},
    {"bailing_moe_v2", kNone, kBridge},
    {"deepseek_v2", kCore, kBoth},
    {"deepseek_v3", kMegatronLm, kBoth},
    {"deepseek_v32", kMegatronLm, kMegatronLm},
    {"ernie4_5", kNone, kBoth},
    {"exaone4", kNone, kBridge},
    {"gemma3_text", kNone, kBridge},
    {"gemma4_text", kNone, kBridge},
    {"glm4_moe", kMegatronLm, kBoth},
    {"glm4_moe_lite", kNone, kBoth},
    {"glm_moe_dsa", kNone, kMegatronLm},
    {"gpt2", kMegatronLm, kBoth},
    {"gpt_oss", kMegatronLm, kBoth},
    {"hy_v3", kNone, kBoth},
    {"kimi_k2", "as deepseek_v3", "as deepseek_v3"},
    {"llama", kMegatronLm, kBoth},
    {"mimo", kNone, kBridge},
    {"minimax_m2", kNone, kBridge},
    {"ministral3", kNone, kBoth},
    {"mistral", kCore, kBoth},
    {"mixtral", kMegatronLm, kBoth},
    {"nemotron_h", kMegatronLm, kMegatronLm},
    {"olmo2", kNone, kRefused},
    {"olmo3", kNone, kRefused},
    {"olmoe", kNone, kBridge},
    {"phi3", kNone, kBoth},
    {"qwen2", kMegatronLm, kBoth},
    {"qwen2_5_vl_text", kNone, kText},
    {"qwen2_moe", kCore, kBoth},
    {"qwen3", kMegatronLm, kBoth},
    {"qwen3_5_moe_text", kNone, kMegatronLm},
    {"qwen3_5_text", kNone, kMegatronLm},
    {"qwen3_moe", kMegatronLm, kBoth},
    {"qwen3_next", kMegatronLm, kMegatronLm},
    {"qwen3_vl_moe_text", kNone, kText},
    {"qwen3_vl_text", kNone, kText},
    {"seed_oss", kNone, kBoth},
    {"smollm3", kNone, kBoth},
};

}  // namespace

const Judges* judges_of(std::string_view family) {
  const auto* found = std::ranges::find(kJudges, family, &Judges::family);
  return found != std::end(kJudges) ? found : nullptr;
}

}  // namespace ferry
