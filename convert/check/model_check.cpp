#include "convert/check/model_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/base/option_name.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/other_programs.h"
#include "convert/adapters.h"
#include "convert/base_only.h"
#include "convert/check/known_model.h"
#include "convert/check/mtp.h"
#include "convert/check/stacks.h"
#include "convert/check/unknown_model.h"
#include "convert/config_value.h"
#include "convert/model/quantised_values.h"

namespace ferry {
namespace {

// Whether the class that saved the model has an output layer for tokens; a model of embeddings, of
// rewards or of classes has none, or another.
bool has_head(const nlohmann::json& config) {
  const std::string name = class_name_of(config);
  if (name.empty()) return true;
  constexpr std::string_view kEnds[] = {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration"};
  return std::any_of(std::begin(kEnds), std::end(kEnds),
                     [&](std::string_view end) { return name.ends_with(end); });
}

// Rewards, classes and spans come from a layer of their own next to the module that holds the
// model; transformers draws a random one where the folder has none.
std::optional<std::string> missing_output_layer(const Catalog& catalog,
                                                const nlohmann::json& config) {
  const std::string name = class_name_of(config);
  constexpr std::string_view kEnds[] = {"ForSequenceClassification", "ForTokenClassification",
                                        "ForQuestionAnswering"};
  if (std::none_of(std::begin(kEnds), std::end(kEnds),
                   [&](std::string_view end) { return name.ends_with(end); })) {
    return std::nullopt;
  }
  std::set<std::string_view> modules;
  for (const Entry& entry : catalog.entries) {
    const std::string_view tensor = entry.name;
    if (tensor != kOutputLayerName) modules.insert(tensor.substr(0, tensor.find('.')));
  }
  if (modules.size() != 1) return std::nullopt;
  return fmt::format(
      "config.json names the class {}, but its output layer is missing (all tensors are in {}); "
      "transformers would initialize it at random",
      name, *modules.begin());
}

// Weights without elements. Of quantised models some parts are so, and stay.
std::optional<std::string> empty_weights(const Catalog& catalog) {
  std::vector<std::string> names;
  for (const Entry& entry : catalog.entries) {
    const bool is_weight = entry.name.ends_with(".weight") && is_floating_point(entry.dtype);
    if (is_weight && entry.elements() == 0) names.push_back(entry.name);
  }
  if (names.empty()) return std::nullopt;
  return fmt::format(
      "{} weight{} no elements: {}. DeepSpeed's ZeRO stage 3 saves models so where it did not "
      "gather their weights (stage3_gather_16bit_weights_on_model_save): they are in its own "
      "checkpoint (global_stepN), which ferry reads",
      names.size(), names.size() == 1 ? " has" : "s have", some_of(names));
}

// Takes quantised weights as their values, where those can be made; problems otherwise.
void take_values(Checkpoint& checkpoint, const nlohmann::json& config,
                 std::vector<std::string>& problems) {
  const FileSystem& files = *checkpoint.catalog->file_system;
  try {
    const auto quantisation = quantisation_of(&config, files, checkpoint.path);
    checkpoint.catalog = values_of(checkpoint.catalog, quantisation, checkpoint.path).catalog;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsupported) return;  // a form that is not read here
    if (error.kind() != ErrorKind::mismatch) throw;
    problems.push_back(error.what());
  }
}

}  // namespace

ModelCheck check_model(const Checkpoint& stored) {
  const FileSystem& files = *stored.catalog->file_system;
  if (stored.format != Format::hugging_face || adapter_base(files, stored.path)) return {};
  ModelCheck check;
  try {
    Checkpoint checkpoint = stored;
    const AdapterSummary adapter = take_adapter_out(checkpoint);
    if (adapter.alone) return {};
    const auto config = read_hugging_face_config(files, checkpoint.path);
    if (!config) return {};
    check.warnings = odd_dtypes(checkpoint.catalog);
    take_values(checkpoint, *config, check.problems);
    if (auto empty = empty_weights(checkpoint.catalog)) check.problems.push_back(std::move(*empty));
    if (auto missing = missing_mtp(checkpoint.catalog, *config)) {
      check.warnings.push_back(std::move(*missing));
    }
    // An adapter may have trained a copy of it, which went with the adapter's tensors.
    auto missing = missing_output_layer(checkpoint.catalog, *config);
    if (missing && adapter.replaced.empty()) {
      check.problems.push_back(std::move(*missing));
    }
    const auto model = known_model(*config, checkpoint.path);
    if (!model) {
      ModelCheck found = compare_with_config(checkpoint.catalog, *config, has_head(*config));
      std::ranges::move(found.problems, std::back_inserter(check.problems));
      std::ranges::move(found.warnings, std::back_inserter(check.warnings));
      return check;
    }
    if (adapter.any()) {
      check.warnings.push_back(fmt::format(
          "the folder holds the model and an adapter of it ({}) as one wrapped model, whose names "
          "transformers does not load",
          to_text(adapter)));
    }
    model->name_embedding(checkpoint.catalog.edit());
    const Misfit misfit = model->compare(checkpoint.catalog, has_head(*config));
    if (misfit.any()) {
      check.problems.push_back(
          fmt::format("its tensors are not those of the model that config.json describes ({}):{}",
                      model->family->name, describe(misfit, model->family->name)));
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    check.problems.push_back(error.what());
  }
  return check;
}

void require_index(const Checkpoint& checkpoint) {
  if (checkpoint.format != Format::hugging_face || checkpoint.damage.empty()) return;
  const std::vector<std::string> problems = check_model(checkpoint).problems;
  fail(ErrorKind::mismatch, "{}\n  {}", fmt::join(checkpoint.damage, "\n  "),
       problems.empty()
           ? fmt::format("Without the index the shards are a whole model, as far as config.json "
                         "and names show, and transformers loads them; {} reads them so",
                         option("ignore_index"))
           : fmt::format("Without the index, too: {}", fmt::join(problems, "\n  ")));
}

}  // namespace ferry
