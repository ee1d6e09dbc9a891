// A state dict that was read, as a Hugging Face folder: the weights, and what lies beside the
// config.json.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/format/hugging_face/quantised_tensors.h"
#include "ckpt/format/hugging_face/safetensors_plan.h"
#include "convert/state_dict/state_dict.h"
#include "convert/tokenizer.h"

namespace ferry {
namespace {

constexpr uint64_t kMostConfigJsonBytes = uint64_t{16} << 20;

// The floating-point type that most elements have.
DType dtype_of_most(const Catalog& catalog) {
  std::map<DType, double> elements;
  for (const Entry& entry : catalog.entries) {
    if (!is_floating_point(entry.dtype)) continue;
    elements[entry.dtype] += static_cast<double>(entry.elements());
  }
  DType common = DType::f32;
  double most = 0;
  for (const auto& [dtype, count] : elements) {
    if (count > most) most = count, common = dtype;
  }
  return common;
}

bool has_quantised(const Catalog& catalog) {
  return std::ranges::any_of(quantised_parts(catalog), [](const QuantisedPart& part) {
    return part.role != QuantisedRole::none;
  });
}

// What of the source is not the model's.
void drop_others(Plan& plan) {
  std::vector<int64_t> used(plan.source->entries.size());
  for (const Recipe& recipe : plan.recipes) {
    for (const Move& move : recipe.moves) used[recipe.inputs[move.input]] += move.elements();
  }
  for (uint32_t i = 0; i < used.size(); ++i) {
    const int64_t left = plan.source->entries[i].elements() - used[i];
    if (left > 0) plan.dropped.push_back({i, left});
  }
}

// config.json with the type of the weights as they are written: programs load them as that type.
std::string config_text(const StateDict& state_dict, const Catalog& written,
                        std::vector<std::string>& warnings) {
  const std::string path = join(state_dict.config_folder, "config.json");
  const FileSystem& files = *state_dict.model.catalog.file_system;
  std::string text = read_file(files, path, kMostConfigJsonBytes);
  nlohmann::json config = parse_python_json(text, path);
  const std::string dtype(torch_name(dtype_of_most(written)));
  bool changed = false;
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto member = config.find(key);
    if (member == config.end() || *member == dtype) continue;
    warnings.push_back(fmt::format("config.json says {} {}: it becomes {}, as the weights are", key,
                                   member->dump(), dtype));
    *member = dtype;
    changed = true;
  }
  if (config.contains("quantization_config") && !has_quantised(written)) {
    warnings.push_back("quantization_config is left out of config.json: the weights are none");
    config.erase("quantization_config");
    changed = true;
  }
  return changed ? config.dump(2) + "\n" : text;
}

}  // namespace

Export plan_state_dict(const StateDict& state_dict, const ExportOptions& options) {
  const Checkpoint& model = state_dict.model;
  SafetensorsExport weights =
      plan_safetensors(model.catalog, {false, options.dtype, options.max_shard_bytes});
  if (state_dict.source) {
    weights.plan.source = state_dict.source;
    weights.plan.recipes = state_dict.recipes;
    drop_others(weights.plan);
  }
  Export result;
  result.family = state_dict.family;
  result.plan = std::move(weights.plan);
  result.count = weights.count;
  result.warnings = state_dict.warnings;
  result.small_files.emplace_back("config.json",
                                  config_text(state_dict, result.plan.target, result.warnings));
  if (!weights.index_json.empty()) {
    result.small_files.emplace_back(kSafetensorsIndexName, std::move(weights.index_json));
  }
  const FileSystem& files = *model.catalog.file_system;
  Tokenizer tokenizer = options.tokenizer_folder.empty()
                            ? tokenizer_beside(files, state_dict.config_folder)
                            : find_tokenizer(files, model, options.tokenizer_folder);
  result.warnings.insert(result.warnings.end(), tokenizer.warnings.begin(),
                         tokenizer.warnings.end());
  result.tokenizer_files = std::move(tokenizer.files);
  if (result.tokenizer_files.empty()) {
    result.warnings.push_back(
        "there are no tokenizer files beside config.json; --tokenizer DIR copies them from "
        "elsewhere");
  }
  return result;
}

}  // namespace ferry
