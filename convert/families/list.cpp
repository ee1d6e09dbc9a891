#include "convert/families/list.h"

namespace ferry {

// The more special first. A model without a window is llama rather than mistral: their files differ
// in nothing but the class's name.
const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      gpt2_family(),      apertus_family(),   deepseek_v3_family(), deepseek_v2_family(),
      qwen2_moe_family(), qwen3_moe_family(), mixtral_family(),     qwen3_family(),
      qwen2_family(),     llama_family(),     mistral_family()};
  return all;
}

}  // namespace ferry
