#include "convert/language_part.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "convert/config_value.h"
#include "convert/model/family.h"
#include "convert/model/types.h"

namespace ferry {
namespace {

using nlohmann::json;

// In transformers, InternVL's own code, DeepSeek-VL's, and in Omni models around theirs.
constexpr const char* kParts[] = {"text_config", "llm_config", "language_config", "thinker_config"};
constexpr const char* kOuter[] = {"bos_token_id", "eos_token_id", "pad_token_id",
                                  "quantization_config"};
constexpr int kMostDepth = 3;

// The objects from `config` to the innermost language model.
std::vector<const json*> path_inside(const json& config) {
  std::vector<const json*> path = {&config};
  for (int depth = 0; depth < kMostDepth; ++depth) {
    const json* inner = nullptr;
    for (const char* key : kParts) {
      const auto found = path.back()->find(key);
      if (found != path.back()->end() && found->is_object()) {
        inner = &*found;
        break;
      }
    }
    if (inner == nullptr) break;
    path.push_back(inner);
  }
  return path;
}

bool is_known(const std::string& type) {
  return find_family(type) != nullptr || same_type(type) != nullptr || computes_otherwise(type);
}

}  // namespace

const json& language_config(const json& config) { return *path_inside(config).back(); }

std::optional<json> language_part(const json& config, const std::optional<std::string>& family) {
  if (!config.is_object() || find_family(text_of(config, "model_type", ""))) return std::nullopt;
  const std::vector<const json*> path = path_inside(config);
  if (path.size() == 1) return std::nullopt;
  json part = *path.back();
  if (!family && !is_known(text_of(part, "model_type", ""))) return std::nullopt;
  for (auto outer = path.rbegin() + 1; outer != path.rend(); ++outer) {
    for (const char* key : kOuter) {
      const bool is_open = part.value(key, json()).is_null();
      if (is_open && (*outer)->contains(key)) part[key] = (**outer)[key];
    }
    if (boolean_of(**outer, "tie_word_embeddings", false)) part["tie_word_embeddings"] = true;
  }
  return part;
}

}  // namespace ferry
