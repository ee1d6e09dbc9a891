// plan_rewrite: from a Hugging Face folder to a plan and the files that go with it.
#include "convert/rewrite/rewrite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/format/hugging_face/quantised_tensors.h"
#include "convert/base_only.h"
#include "convert/check/embedding.h"
#include "convert/check/known_model.h"
#include "convert/check/model_check.h"
#include "convert/export/lay_out.h"
#include "convert/export/quantise.h"
#include "convert/model/family.h"
#include "convert/model/quantised_values.h"
#include "convert/rewrite/expert_forms.h"
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

// Weights that are moved as they are: what config.json says and the tensors do not.
void compare_quantisation(const std::optional<Quantisation>& quantisation, bool is_quantised,
                          std::vector<std::string>& warnings) {
  if (std::string what = quantisation_mismatch(quantisation, is_quantised); !what.empty()) {
    warnings.push_back(std::move(what));
  } else if (quantisation && !quantisation->is_known) {
    warnings.push_back(fmt::format("the weights are quantised by {} and are moved as they are",
                                   to_text(*quantisation)));
  }
}

// How the weights are quantised. Where they are to change, the model gets their values instead:
// unsupported where none can be made of them.
std::optional<Quantisation> check_quantisation(Checkpoint& model, bool changes,
                                               std::vector<std::string>& warnings) {
  const FileSystem& files = *model.catalog->file_system;
  const auto config = read_hugging_face_config(files, model.path);
  auto quantisation = quantisation_of(config.get(), files, model.path);
  if (!changes) {
    compare_quantisation(quantisation, has_quantised_weights(model.catalog), warnings);
    return quantisation;
  }
  QuantisedValues values = values_of(model.catalog, quantisation, model.path);
  if (!values.left_out.empty()) warnings.push_back(std::move(values.left_out));
  if (values.any && !quantisation) quantisation = Quantisation();
  model.catalog = std::move(values.catalog);
  return quantisation;
}

bool holds_quantised(const Catalog& catalog) {
  return std::ranges::any_of(quantised_parts(catalog), [](const QuantisedPart& part) {
    return part.role != QuantisedRole::none;
  });
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

const ExpertNames* expert_names(const Checkpoint& model) {
  for (const std::string& type : model_types(model)) {
    if (const ExpertNames* names = expert_names_of(type)) return names;
  }
  return nullptr;
}

std::optional<bool> transposed_experts(const Checkpoint& model) {
  for (const std::string& type : model_types(model)) {
    if (const auto known = are_experts_transposed(type)) return known;
  }
  return std::nullopt;
}

// Whether no type that config.json names is known, as a family or by its experts.
bool is_unknown(const Checkpoint& model) {
  return expert_names(model) == nullptr &&
         std::ranges::none_of(model_types(model),
                              [](const std::string& type) { return find_family(type) != nullptr; });
}

// Tensors into files, with the config.json and the files of the folder `model`.
void finish(const Checkpoint& model, const ExportOptions& options, ExportedTensors tensors,
            NewWeights weights, Export& result) {
  const FileSystem& files = *model.catalog->file_system;
  const std::string& folder = options.config_folder.empty() ? model.path : options.config_folder;
  if (!options.quantise.empty()) {
    Checkpoint described = model;
    described.path = folder;
    QuantisedFiles written = quantise(
        options.quantise, tensors,
        {expert_names(described), transposed_experts(described), model.path, is_unknown(described)},
        result.warnings);
    weights.quantisation = std::move(written.config);
    if (!written.model_opt.empty()) {
      result.small_files.emplace_back(kModelOptConfig, std::move(written.model_opt));
    }
  }
  lay_out(std::move(tensors), options.max_shard_bytes, result);
  const std::string path = join(folder, "config.json");
  if (files.status(path).kind == PathKind::file) {
    result.small_files.emplace_back(
        "config.json", edited_config(read_file(files, path, kMostConfigBytes), path, weights));
  } else {
    result.warnings.push_back(fmt::format(
        "the folder has no config.json, and neither will the new one; {} takes it from elsewhere",
        option("config_folder", "DIR")));
  }
  CarriedFiles carried =
      files_of_model(files, folder, options.tokenizer_folder, options.top_files_only);
  result.tokenizer_files = std::move(carried.files);
  if (!carried.left.empty() && !options.top_files_only) {
    result.warnings.push_back(left_out(carried.left));
  }
  if (weights.is_dequantised ||
      !options.quantise.empty()) {  // it describes other weights than these
    std::erase_if(result.tokenizer_files,
                  [](const CopiedFile& file) { return file.name == kModelOptConfig; });
  }
}

// Whether the model is whole. A state dict of a known family was compared with its config.json when
// it was read; what is missing in another one's names is only reported, as its parts are not known.
void check_tensors(const Checkpoint& checkpoint, bool is_folder,
                   std::vector<std::string>& warnings) {
  auto [problems, doubts] = check_model(checkpoint);
  std::move(doubts.begin(), doubts.end(), std::back_inserter(warnings));
  if (problems.empty()) return;
  if (is_folder) {
    fail(ErrorKind::mismatch, "{}: {}\n  {} copies the tensors that are there", checkpoint.path,
         fmt::join(problems, "\n  "), option("as_is"));
  }
  std::move(problems.begin(), problems.end(), std::back_inserter(warnings));
}

// torch.save keeps the output layer of a tied model, which transformers leaves out of safetensors.
void drop_tied_output(const Checkpoint& model, const nlohmann::json& config,
                      ExportedTensors& tensors, std::vector<std::string>& warnings) {
  const auto known = known_model(config, model.path);
  const OutputLayer output = output_layer_of(config, known ? &*known : nullptr);
  const Entry* stored =
      output.is_tied ? second_name_of_embedding(model.catalog, output.name) : nullptr;
  if (stored == nullptr) return;
  std::erase_if(tensors.tensors,
                [&](const ExportedTensor& tensor) { return tensor.entry.name == output.name; });
  const auto position = stored - model.catalog->entries.data();
  tensors.dropped.push_back({static_cast<uint32_t>(position), stored->elements()});
  warnings.push_back(
      fmt::format("{} is left out: it is the embedding under a second name", output.name));
}

}  // namespace

Export plan_rewrite(const Checkpoint& checkpoint, const ExportOptions& options) {
  const std::string& path = checkpoint.path;
  refuse_adapter_folder(checkpoint);
  Export result;
  result.warnings = checkpoint.notes;
  const bool has_own_config = options.config_folder.empty() || options.config_folder == path;
  if (!options.as_is && !options.ignore_index) require_index(checkpoint);
  const bool fills = options.original != nullptr;
  Checkpoint described = checkpoint;
  if (!has_own_config) described.path = options.config_folder;
  const auto config = read_hugging_face_config(*checkpoint.catalog->file_system, described.path);
  const bool is_stale = !has_own_config && config && config->contains("quantization_config") &&
                        !holds_quantised(checkpoint.catalog);
  std::optional<Quantisation> quantisation;
  if (!is_stale) {
    quantisation = check_quantisation(
        described, options.dtype || !options.quantise.empty() || fills, result.warnings);
  }
  if (fills) {  // what it lacks comes from there
    check_tensors(*options.original, false, result.warnings);
  } else if (!options.as_is) {
    Checkpoint stored = checkpoint;
    stored.path = described.path;
    check_tensors(stored, has_own_config, result.warnings);
  }
  result.plan.source = described.catalog;
  if (quantisation && !options.quantise.empty() && !options.dtype) {
    fail(ErrorKind::invalid,
         "{}: the weights are quantised ({}) already; {} too quantises them anew", path,
         to_text(*quantisation), option("dtype", "bf16"));
  }
  if (quantisation && fills && !options.dtype) {
    fail(ErrorKind::invalid, "{}: is quantised; it is filled up as values only ({})", path,
         option("dtype", "bf16"));
  }
  ExportedTensors tensors = stored_tensors(described.catalog, options.dtype, result.warnings);
  if (config && !options.as_is) {
    drop_tied_output(described, *config, tensors, result.warnings);
  }
  if (!checkpoint.catalog->objects.empty()) {
    result.warnings.push_back(fmt::format("{} stored objects that are not tensors are left out: {}",
                                          checkpoint.catalog->objects.size(),
                                          checkpoint.catalog->objects.front().name));
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
  Checkpoint original = *options.original;
  if (original.format != Format::hugging_face) {
    fail(ErrorKind::invalid,
         "{}: is not a Hugging Face model, from which a checkpoint is filled up", original.path);
  }
  if (!options.ignore_index) require_index(original);
  const auto quantisation = check_quantisation(original, true, result.warnings);
  const DType dtype = tensors.dtype;
  const bool is_quantised = quantisation.has_value();
  result.plan.source = fill_tensors(
      original, result.plan.source,
      is_quantised ? options.dtype.value_or(DType::bf16) : options.dtype, tensors, result.warnings);
  ExportOptions whole = options;  // the config.json of what was trained may be that of a part
  whole.config_folder.clear();
  whole.top_files_only = false;
  finish(original, whole, std::move(tensors), {dtype, is_quantised, {}}, result);
}

}  // namespace ferry
