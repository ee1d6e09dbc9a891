// plan_rewrite: from a Hugging Face folder to a plan and the files beside it.
#include "convert/rewrite/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/format/other_programs.h"
#include "convert/export/lay_out.h"
#include "convert/export/quantise_fp8.h"
#include "convert/rewrite/fill.h"
#include "convert/rewrite/stored_tensors.h"
#include "convert/tokenizer.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kMostConfigBytes = uint64_t{16} << 20;

// Says the type of the weights wherever the configuration says one: of each part of a model.
void set_dtype(ordered_json& config, DType dtype) {
  for (auto& [key, value] : config.items()) {
    const bool is_dtype = key == "torch_dtype" || key == "dtype";
    if (value.is_object()) set_dtype(value, dtype);
    if (is_dtype && value.is_string()) value = torch_name(dtype);
  }
}

void drop_quantisation(ordered_json& config) {
  config.erase("quantization_config");
  config.erase("compression_config");
  for (auto& [key, value] : config.items()) {
    if (value.is_object()) drop_quantisation(value);
  }
}

// What config.json says of the weights once they are written.
struct NewWeights {
  std::optional<DType> dtype;  // as it was
  bool is_dequantised = false;
  ordered_json quantisation;  // null: none that is new
};

std::string edited_config(const std::string& text, const std::string& path,
                          const NewWeights& weights) {
  if (!weights.dtype && !weights.is_dequantised && weights.quantisation.is_null()) return text;
  return edit_python_json(text, path, [&](ordered_json& config) {
    if (weights.is_dequantised) drop_quantisation(config);
    if (weights.dtype) {
      set_dtype(config, *weights.dtype);
      if (!config.contains("dtype") && !config.contains("torch_dtype")) {
        config["torch_dtype"] = torch_name(*weights.dtype);
      }
    }
    if (!weights.quantisation.is_null()) config["quantization_config"] = weights.quantisation;
  });
}

std::optional<Quantisation> look_at_quantisation(const nlohmann::json* config, bool changes,
                                                 const std::string& path, Export& result) {
  const auto quantisation = quantisation_of(config);
  if (!quantisation || !quantisation->fp8_block.empty()) return quantisation;
  if (changes) {
    fail(ErrorKind::unsupported,
         "{}: the weights are quantised by {}; of quantised ones, only blocks of fp8 (quant_method "
         "fp8, fmt e4m3, weight_block_size) can be changed. Without --dtype and --quantize they "
         "are moved as they are; for another type, take the model that is not quantised",
         path, quantisation->method);
  }
  result.warnings.push_back(fmt::format("the weights are quantised by {} and are moved as they are",
                                        quantisation->method));
  return quantisation;
}

bool holds_bytes(const Catalog& catalog) {
  return std::any_of(catalog.entries.begin(), catalog.entries.end(),
                     [](const Entry& entry) { return size_bytes(entry.dtype) == 1; });
}

// A config.json from elsewhere gets the type of these weights: programs load them as that.
void adopt_config(const nlohmann::json& config, DType dtype, NewWeights& weights,
                  std::vector<std::string>& warnings) {
  const std::string name(torch_name(dtype));
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto member = config.find(key);
    if (member == config.end() || *member == name) continue;
    warnings.push_back(fmt::format("config.json says {} {}: it becomes {}, as the weights are", key,
                                   member->dump(), name));
    weights.dtype = dtype;
  }
}

// Tensors into files, with the config.json and the files of the folder `model`.
void finish(const Checkpoint& model, const ExportOptions& options, ExportedTensors tensors,
            NewWeights weights, Export& result) {
  const FileSystem& files = *model.catalog.file_system;
  if (options.quantise_fp8) {
    weights.quantisation = quantise_fp8(tensors, model.path, result.warnings);
  }
  lay_out(std::move(tensors), options.max_shard_bytes, result);
  const std::string& folder = options.config_folder.empty() ? model.path : options.config_folder;
  const std::string path = join(folder, "config.json");
  if (files.status(path).kind == PathKind::file) {
    result.small_files.emplace_back(
        "config.json", edited_config(read_file(files, path, kMostConfigBytes), path, weights));
  } else {
    result.warnings.push_back(
        "the folder has no config.json, and neither will the new one; --config DIR takes it from "
        "elsewhere");
  }
  CarriedFiles carried =
      files_of_model(files, folder, options.tokenizer_folder, options.top_files_only);
  result.tokenizer_files = std::move(carried.files);
  if (!carried.left.empty() && !options.top_files_only) {
    result.warnings.push_back(left_out(carried.left));
  }
}

}  // namespace

Export plan_rewrite(const Checkpoint& checkpoint, const ExportOptions& options) {
  const std::string& path = checkpoint.path;
  if (const auto base = adapter_base(*checkpoint.catalog.file_system, path)) {
    fail(ErrorKind::unsupported, "{}: {}", path, what_adapter(*base));
  }
  Export result;
  result.warnings = checkpoint.notes;
  result.plan.source = &checkpoint.catalog;
  const bool has_own_config = options.config_folder.empty() || options.config_folder == path;
  const std::string& folder = has_own_config ? path : options.config_folder;
  const auto config = read_hugging_face_config(*checkpoint.catalog.file_system, folder);
  const bool fills = options.original != nullptr;
  const bool is_stale =
      !has_own_config && quantisation_of(config.get()) && !holds_bytes(checkpoint.catalog);
  const auto quantisation =
      look_at_quantisation(is_stale ? nullptr : config.get(),
                           options.dtype || options.quantise_fp8 || fills, path, result);
  if (quantisation && options.quantise_fp8 && !options.dtype) {
    fail(ErrorKind::invalid,
         "{}: the weights are quantised (fp8, blocks of {}) already; --dtype bf16 too quantises "
         "them anew",
         path, to_string(quantisation->fp8_block));
  }
  if (quantisation && fills && !options.dtype) {
    fail(ErrorKind::invalid, "{}: is quantised; it is filled up as values only (--dtype bf16)",
         path);
  }
  ExportedTensors tensors =
      stored_tensors(checkpoint.catalog, {options.dtype, quantisation}, path, result.warnings);
  if (!checkpoint.catalog.objects.empty()) {
    result.warnings.push_back(fmt::format("{} stored objects that are no tensors are left out: {}",
                                          checkpoint.catalog.objects.size(),
                                          checkpoint.catalog.objects.front().name));
  }
  if (fills) {
    fill_up(options, std::move(tensors), result);
    return result;
  }
  NewWeights weights = {options.dtype, options.dtype && quantisation, {}};
  if (is_stale) {
    weights.is_dequantised = true;
    result.warnings.push_back(
        "quantization_config is left out of config.json: the weights are none");
  }
  if (!has_own_config && config) adopt_config(*config, tensors.dtype, weights, result.warnings);
  finish(checkpoint, options, std::move(tensors), std::move(weights), result);
  return result;
}

void fill_up(const ExportOptions& options, ExportedTensors tensors, Export& result) {
  const Checkpoint& original = *options.original;
  if (original.format != Format::hugging_face) {
    fail(ErrorKind::invalid, "{}: is no Hugging Face model, from which a checkpoint is filled up",
         original.path);
  }
  const auto config = read_hugging_face_config(*original.catalog.file_system, original.path);
  const auto quantisation = look_at_quantisation(config.get(), true, original.path, result);
  const DType dtype = tensors.dtype;
  result.filled_source = fill_tensors(original, *result.plan.source, options.dtype, quantisation,
                                      tensors, result.warnings);
  result.plan.source = result.filled_source.get();
  finish(original, options, std::move(tensors), {dtype, quantisation.has_value(), {}}, result);
}

}  // namespace ferry
