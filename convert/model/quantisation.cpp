#include "convert/model/quantisation.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ckpt/format/hugging_face/json_events.h"
#include "convert/config_value.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr uint64_t kMostModelOptBytes = uint64_t{16} << 20;

// Two positive numbers; empty where the member is anything else.
Dims block_of(const json& quantised, const char* key) {
  const auto sizes = quantised.find(key);
  if (sizes == quantised.end() || !sizes->is_array() || sizes->size() != 2) return {};
  const Dims block = {integer_of((*sizes)[0], 0), integer_of((*sizes)[1], 0)};
  return block[0] > 0 && block[1] > 0 ? block : Dims();
}

// The first of these members that is a whole number, wherever it stands.
int64_t find_number(const json& value, std::initializer_list<const char*> names, int depth = 0) {
  if (depth > 4 || !value.is_structured()) return 0;
  for (const char* name : names) {
    if (const int64_t number = integer_of(value, name, 0); number > 0) return number;
  }
  for (const json& part : value) {
    if (const int64_t found = find_number(part, names, depth + 1); found > 0) return found;
  }
  return 0;
}

// The block of each group of layers where all have the same; weights that were rotated before they
// were quantised are others than those of the model.
void read_compressed_tensors(const json& quantised, Quantisation& result) {
  const auto transforms = quantised.find("transform_config");
  const bool is_rotated = transforms != quantised.end() && transforms->is_object() &&
                          transforms->contains("config_groups") &&
                          !(*transforms)["config_groups"].empty();
  result.is_known = !is_rotated;
  const auto groups = quantised.find("config_groups");
  if (groups == quantised.end() || !groups->is_object()) return;
  bool first = true;
  for (const json& group : *groups) {
    const auto weights = group.is_object() ? group.find("weights") : group.end();
    if (weights == group.end() || !weights->is_object()) continue;
    Dims block = block_of(*weights, "block_structure");
    const int64_t columns = integer_of(*weights, "group_size", 0);
    const int64_t bits = integer_of(*weights, "num_bits", 0);
    if (block.empty() && columns > 0) block = {1, columns};
    if (!first && block != result.block) result.block.clear(), result.group = 0;
    if (!first && bits != result.bits) result.bits = 0;
    if (first) result.block = std::move(block), result.bits = bits;
    first = false;
  }
}

bool is_known_of_modelopt(const std::string& algorithm) {
  for (const char* known : {"FP8", "NVFP4", "W4A16_NVFP4", "MXFP8", "W4A8_MXFP4_FP8", "FP8_PB_WO",
                            "FP8_PER_CHANNEL_PER_TOKEN", "MIXED_PRECISION"}) {
    if (algorithm == known) return true;
  }
  return false;
}

Quantisation quantisation_in(const json& quantised) {
  Quantisation result;
  if (!quantised.is_object()) return result;
  result.method = text_of(quantised, "quant_method", result.method);
  result.form = text_of(quantised, "format", text_of(quantised, "quant_algo", ""));
  result.bits = find_number(quantised, {"bits", "w_bit", "num_bits"});
  if (result.bits == 0 && boolean_of(quantised, "load_in_4bit", false)) result.bits = 4;
  if (result.bits == 0 && boolean_of(quantised, "load_in_8bit", false)) result.bits = 8;
  result.group = find_number(quantised, {"group_size", "q_group_size"});
  if (result.method == "fp8" || result.method == "mxfp8") {
    result.is_known = text_of(quantised, "fmt", "e4m3") == "e4m3";
    result.block = block_of(quantised, "weight_block_size");
  }
  if (result.method == "mxfp4") result.is_known = true;
  if (result.method == "compressed-tensors") read_compressed_tensors(quantised, result);
  if (result.method == "modelopt") result.is_known = is_known_of_modelopt(result.form);
  return result;
}

}  // namespace

std::string to_text(const Quantisation& quantisation) {
  std::string text = quantisation.method;
  if (!quantisation.form.empty()) text += ", " + quantisation.form;
  if (!quantisation.block.empty()) text += ", blocks of " + to_string(quantisation.block);
  if (quantisation.bits > 0) text += fmt::format(", {} bits", quantisation.bits);
  if (quantisation.group > 0) text += fmt::format(", groups of {}", quantisation.group);
  return text;
}

std::optional<Quantisation> quantisation_of(const json* config) {
  if (config == nullptr || !config->is_object()) return std::nullopt;
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto found = config->find(key);
    if (found != config->end() && !found->is_null()) return quantisation_in(*found);
  }
  // In models of several parts, the language model's own.
  const auto text = config->find("text_config");
  return text == config->end() ? std::nullopt : quantisation_of(&*text);
}

std::optional<Quantisation> quantisation_of(const json* config, const FileSystem& files,
                                            const std::string& folder) {
  if (auto found = quantisation_of(config)) return found;
  const std::string path = join(folder, kModelOptConfig);
  if (files.status(path).kind != PathKind::file) return std::nullopt;
  const json whole = parse_python_json(read_file(files, path, kMostModelOptBytes), path);
  const auto quantised = whole.is_object() ? whole.find("quantization") : whole.end();
  if (quantised == whole.end() || !quantised->is_object()) return std::nullopt;
  json known = *quantised;
  known["quant_method"] = "modelopt";
  return quantisation_in(known);
}

}  // namespace ferry
