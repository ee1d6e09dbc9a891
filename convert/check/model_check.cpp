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
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/other_programs.h"
#include "convert/adapters.h"
#include "convert/base_only.h"
#include "convert/check/findings.h"
#include "convert/check/layers.h"
#include "convert/check/mtp.h"
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
void find_missing_output_layer(const Catalog& catalog, const nlohmann::json& config,
                               Findings& findings) {
  const std::string name = class_name_of(config);
  constexpr std::string_view kEnds[] = {"ForSequenceClassification", "ForTokenClassification",
                                        "ForQuestionAnswering"};
  if (std::none_of(std::begin(kEnds), std::end(kEnds),
                   [&](std::string_view end) { return name.ends_with(end); })) {
    return;
  }
  std::set<std::string_view> modules;
  for (const Entry& entry : catalog.entries) {
    const std::string_view tensor = entry.name;
    if (tensor != kOutputLayerName) modules.insert(tensor.substr(0, tensor.find('.')));
  }
  if (modules.size() != 1) return;
  findings.problem(
      "missing", "the output layer",
      fmt::format("config.json names the class {}, but its output layer is missing (all tensors "
                  "are in {}); transformers would initialize it at random",
                  name, *modules.begin()));
}

// Weights without elements. Of quantised models some parts are so, and stay.
void find_empty_weights(const Catalog& catalog, Findings& findings) {
  std::vector<std::string> names;
  for (const Entry& entry : catalog.entries) {
    const bool is_weight = entry.name.ends_with(".weight") && is_floating_point(entry.dtype);
    if (is_weight && entry.elements() == 0) names.push_back(entry.name);
  }
  if (names.empty()) return;
  findings.problem(
      "shape", names.front(),
      fmt::format("{} weight{} no elements: {}. DeepSpeed's ZeRO stage 3 saves models so where it "
                  "did not gather their weights (stage3_gather_16bit_weights_on_model_save)",
                  names.size(), names.size() == 1 ? " has" : "s have", some_of(names)),
      "they are in its own checkpoint (global_stepN), which ferry reads");
}

// Takes quantised weights as their values, where those can be made; problems otherwise.
void take_values(Checkpoint& checkpoint, const nlohmann::json& config, Findings& findings) {
  const FileSystem& files = *checkpoint.catalog->file_system;
  try {
    const auto quantisation = quantisation_of(&config, files, checkpoint.path);
    checkpoint.catalog = values_of(checkpoint.catalog, quantisation, checkpoint.path).catalog;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsupported) return;  // a form that is not read here
    if (error.kind() != ErrorKind::mismatch) throw;
    findings.problem("quantisation", checkpoint.path, error.what());
  }
}

}  // namespace

ModelExamination examine_model(const Checkpoint& stored) {
  const FileSystem& files = *stored.catalog->file_system;
  ModelExamination found;
  if (stored.format != Format::hugging_face || adapter_base(files, stored.path)) return found;
  try {
    Checkpoint checkpoint = stored;
    const AdapterSummary adapter = take_adapter_out(checkpoint);
    if (adapter.alone) return found;
    const auto config = read_hugging_face_config(files, checkpoint.path);
    if (!config) return found;
    find_odd_dtypes(checkpoint.catalog, found.findings);
    take_values(checkpoint, *config, found.findings);
    find_empty_weights(checkpoint.catalog, found.findings);
    find_missing_mtp(checkpoint.catalog, *config, found.findings);
    // An adapter may have trained a copy of it, which went with the adapter's tensors.
    if (adapter.replaced.empty()) {
      find_missing_output_layer(checkpoint.catalog, *config, found.findings);
    }
    auto model = known_model(*config, checkpoint.path);
    if (!model) {
      compare_with_config(checkpoint.catalog, *config, has_head(*config), found.findings);
      return found;
    }
    if (adapter.any()) {
      found.findings.warning(
          "names", checkpoint.path,
          fmt::format("the folder holds the model and an adapter of it ({}) as one wrapped model, "
                      "whose names transformers does not load",
                      to_text(adapter)));
    }
    model->name_embedding(checkpoint.catalog.edit());
    found.misfit = model->compare(checkpoint.catalog, has_head(*config));
    found.model = std::move(model);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    found.findings.problem("files", stored.path, error.what());
  }
  return found;
}

ModelCheck check_model(const Checkpoint& checkpoint) {
  ModelExamination found = examine_model(checkpoint);
  ModelCheck check;
  for (const Finding& finding : found.findings.list()) {
    std::vector<std::string>& sentences = finding.is_problem ? check.problems : check.warnings;
    sentences.push_back(finding.what + (finding.advice.empty() ? "" : "; " + finding.advice));
  }
  if (found.misfit.any()) {
    const std::string& family = found.model->family->name;
    check.problems.push_back(
        fmt::format("its tensors are not those of the model that config.json describes ({}):{}",
                    family, describe(found.misfit, family)));
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
