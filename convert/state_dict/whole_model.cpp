#include "convert/state_dict/whole_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/core/quantised.h"
#include "convert/import.h"
#include "convert/model/hugging_face_tensors.h"

namespace ferry {
namespace {

void report_left_out(const std::vector<std::string>& names, StateDict& result) {
  if (names.empty()) return;
  result.warnings.push_back(
      fmt::format("{} left out (copies, buffers, or what the family has not): {}",
                  names.size() == 1 ? "1 tensor is" : fmt::format("{} tensors are", names.size()),
                  some_of(names)));
}

// Whether the model is a part only, which another one completes.
bool lacks_tensors(const ReadConfig& config, const std::unordered_set<std::string>& expected,
                   const StateDict& result) {
  const HuggingFaceTensors tensors(result.model.catalog, *config.family);
  return std::ranges::any_of(expected, [&](const std::string& name) {
    return !tensors.has(name) &&
           !(config.architecture.tied && name == config.family->output_layer_name());
  });
}

// What is not the model's is refused when it is filled up, as nothing there has its name.
void leave_out_copies(const ReadConfig& config, const std::unordered_set<std::string>& expected,
                      const StateDictOptions& options, StateDict& result) {
  Catalog& model = result.model.catalog.edit();
  const auto output = tied_output_layer(model, config);
  const bool is_copied = output && output->is_copy;
  std::vector<std::string> left_out;
  std::erase_if(model.entries, [&](const Entry& entry) {
    const bool is_buffer = std::ranges::any_of(
        config.family->buffers, [&](std::string_view end) { return entry.name.ends_with(end); });
    const bool is_unknown = options.drop_unknown && !expected.contains(entry.name);
    const bool goes =
        is_buffer || is_unknown || (is_copied && entry.name == config.family->output_layer_name());
    if (goes) left_out.push_back(entry.name);
    return goes;
  });
  report_left_out(left_out, result);
}

Import import_whole(const ReadConfig& config, const std::unordered_set<std::string>& expected,
                    const ImportOptions& import, const StateDict& result) {
  try {
    return import_model(result.model, import);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::mismatch || !lacks_tensors(config, expected, result)) throw;
    fail(error.kind(),
         "{}\n  {} {} takes what is missing (frozen parameters, which some programs do not save) "
         "from "
         "the model that was trained from",
         error.what(), option("to", "hugging_face"), option("fill_from", "DIR"));
  }
}

// Import proves that all tensors are there and have their shapes; what it leaves out goes.
void keep_model(const ReadConfig& config, const std::unordered_set<std::string>& expected,
                const StateDictOptions& options, StateDict& result) {
  ImportOptions import;
  import.family = options.family;
  import.ignored_members = options.ignored_members;
  import.config_folder = result.config_folder;
  import.top_files_only = result.top_files_only;
  import.drop_unknown = options.drop_unknown;
  import.any_dtype = true;
  const Import checked = import_whole(config, expected, import, result);
  std::unordered_set<uint32_t> of_model;
  const HuggingFaceTensors tensors(result.model.catalog, *config.family);
  for (const std::string& name : expected) {
    const bool head = name == config.family->output_layer_name() && config.architecture.tied;
    if (const auto at = tensors.position(name); at && !head) of_model.insert(*at);
  }
  std::unordered_set<std::string_view> used;  // the source of the import may have values instead
  for (const StateTensor& tensor : checked.state.tensors) {
    for (const uint32_t input : tensor.recipe.inputs) {
      for_each_stored(checked.state.source->entries.at(input),
                      [&](const Entry& stored) { used.insert(stored.name); });
    }
  }
  const auto output = tied_output_layer(result.model.catalog, config);
  if (output && !output->is_copy) {
    result.warnings.push_back(fmt::format(
        "config.json ties the output layer to the embedding (tie_word_embeddings), but tensor {} "
        "differs from {}: the model has both, as in transformers; programs that go by config.json "
        "alone need tie_word_embeddings false there",
        config.family->output_layer_name(), output->embedding));
  }
  std::vector<std::string> left_out;
  std::vector<Entry> kept;
  std::vector<Recipe> recipes;
  auto& entries = result.model.catalog.edit().entries;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const bool is_used = of_model.contains(i) || used.contains(entries[i].name);
    if (is_used || entries[i].role == Role::optimizer) {
      kept.push_back(std::move(entries[i]));
      if (!result.recipes.empty()) recipes.push_back(std::move(result.recipes[i]));
    } else {
      left_out.push_back(entries[i].name);
    }
  }
  entries = std::move(kept);
  result.recipes = std::move(recipes);
  report_left_out(left_out, result);
}

}  // namespace

void require_model(const ReadConfig& config, const std::unordered_set<std::string>& expected,
                   const StateDictOptions& options, StateDict& result) {
  result.family = config.family->name;
  if (!options.fill_from.empty() && lacks_tensors(config, expected, result)) {
    leave_out_copies(config, expected, options, result);
  } else {
    keep_model(config, expected, options, result);
  }
}

}  // namespace ferry
