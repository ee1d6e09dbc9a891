#include "convert/check/config_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/format/hugging_face/quantised_tensors.h"
#include "convert/check/embedding.h"
#include "convert/config_value.h"
#include "convert/language_part.h"
#include "convert/model/numbered_name.h"
#include "convert/model/quantisation.h"
#include "convert/model/quantised_values.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr const char* kConfig = "config.json";

// A member that describes a part of the model, and what names of its tensors contain.
struct PartWords {
  const char* member;
  std::string_view what;
  std::array<std::string_view, 6> words;
};
constexpr PartWords kInputParts[] = {
    {"vision_config", "of images", {"vis", "image", "img", "patch", "pixel", "vit"}},
    {"audio_config", "of sounds", {"audio", "speech", "sound", "encoder", "mel", "whisper"}}};

void check_names(const json& config, Loader loader, Findings& findings) {
  if (text_of(config, "model_type", "").empty()) {
    findings.problem("config", "model_type",
                     "config.json has no model_type, by which transformers and engines choose the "
                     "model's configuration",
                     "copy it from the config.json of the original model");
  }
  if (class_name_of(config).empty()) {
    findings.add(is_engine(loader), "config", "architectures",
                 "config.json has no architectures, by which vLLM and SGLang choose the model's "
                 "class",
                 "add the name of the class that saved the model: [\"LlamaForCausalLM\"]");
  }
}

std::optional<DType> most_common_dtype(const Catalog& catalog) {
  std::map<DType, double> elements;
  for (const Entry& entry : catalog.entries) {
    if (entry.role != Role::model || !is_floating_point(entry.dtype)) continue;
    elements[entry.dtype] += static_cast<double>(entry.elements());
  }
  const auto most =
      std::ranges::max_element(elements, {}, [](const auto& each) { return each.second; });
  return most == elements.end() ? std::nullopt : std::optional(most->first);
}

void check_dtype(const Catalog& catalog, const json& config, Findings& findings) {
  const auto stored = most_common_dtype(catalog);
  if (!stored || has_quantised_weights(catalog)) return;
  for (const json* part : {&config, &language_config(config)}) {
    const std::string said = text_of(*part, "dtype", text_of(*part, "torch_dtype", ""));
    if (said.empty() || said == "auto") continue;
    if (said == torch_name(*stored)) return;
    findings.warning("dtype", kConfig,
                     fmt::format("config.json says {}, but most weights are {}: programs load them "
                                 "as the former",
                                 said, torch_name(*stored)),
                     fmt::format("set dtype to {}, or write them as {} (convert with {})",
                                 torch_name(*stored), said, option("dtype")));
    return;
  }
}

// A model is tied where its configuration says so and the file holds no other output layer; engines
// take the embedding whatever the file holds.
void check_tie(const Catalog& catalog, const json& config, const KnownModel* known, Loader loader,
               Findings& findings) {
  if (loader == Loader::transformers) return;
  const auto [head, is_tied] = output_layer_of(config, known);
  if (!is_tied || catalog.find(head) == nullptr) return;
  if (second_name_of_embedding(catalog, head) != nullptr) return;
  findings.warning(
      "tie", head,
      fmt::format("{} is stored, but config.json ties the output layer to the embedding "
                  "(tie_word_embeddings): transformers takes it where it differs from the "
                  "embedding, vLLM and SGLang do not",
                  head),
      "set tie_word_embeddings to false if the two differ, else remove the tensor");
}

void check_parts(const Catalog& catalog, const json& config, Findings& findings) {
  for (const PartWords& part : kInputParts) {
    const auto member = config.find(part.member);
    if (member == config.end() || !member->is_object() || member->empty()) continue;
    const bool is_there = std::ranges::any_of(catalog.entries, [&](const Entry& entry) {
      return std::ranges::any_of(part.words, [&](std::string_view word) {
        return entry.name.find(word) != entry.name.npos;
      });
    });
    if (is_there) continue;
    findings.problem(
        "parts", part.member,
        fmt::format("config.json describes a part for inputs {} ({}), but no tensor is of one",
                    part.what, part.member),
        fmt::format("take its tensors from the original model (convert with {}), or save the "
                    "language model alone with its own config.json",
                    option("fill_from", "DIR")));
  }
}

// Modules that config.json excepts from the quantisation, by name or by a part of one.
std::vector<std::string> excepted_modules(const json& config) {
  std::vector<std::string> modules;
  for (const json* part : {&config, &language_config(config)}) {
    const auto quantisation = part->find("quantization_config");
    if (quantisation == part->end() || !quantisation->is_object()) continue;
    for (const char* key :
         {"modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"}) {
      const auto list = quantisation->find(key);
      if (list == quantisation->end() || !list->is_array()) continue;
      for (const json& each : *list) {
        if (each.is_string()) modules.push_back(each.get<std::string>());
      }
    }
  }
  return modules;
}

// Whole modules alone: patterns ("re:.*", "*") and parts of names are matched otherwise by each
// program.
void check_excepted(const Catalog& catalog, const std::vector<QuantisedPart>& parts,
                    const json& config, Findings& findings) {
  const std::vector<std::string> excepted = excepted_modules(config);
  if (excepted.empty()) return;
  std::vector<std::string> wrong;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].values != i || parts[i].role == QuantisedRole::none) continue;
    const std::string& name = parts[i].parameter;
    const std::string module = name.substr(0, name.rfind('.'));
    if (has_name(excepted, module)) wrong.push_back(catalog.entries[i].name);
  }
  if (wrong.empty()) return;
  findings.problem(
      "quantisation", wrong.front(),
      fmt::format("config.json excepts {} module{} from the quantisation whose weights "
                  "are quantised: {}",
                  wrong.size(), wrong.size() == 1 ? "" : "s", some_of(wrong, 3)),
      "correct quantization_config, or take the weights of the model it belongs to");
}

// Weights that are not quantised, as most of their kind in other layers are, though config.json
// does not except them: engines make room for codes and scales, and find none.
void check_left_plain(const Catalog& catalog, const std::vector<QuantisedPart>& parts,
                      const json& config, Findings& findings) {
  const std::vector<std::string> excepted = excepted_modules(config);
  struct Kind {
    size_t quantised = 0;
    std::vector<std::string> plain;
  };
  std::map<std::string, Kind> kinds;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string& name = parts[i].parameter;
    if (parts[i].role == QuantisedRole::none) {
      const bool is_named = std::ranges::any_of(
          excepted, [&](const std::string& each) { return name.find(each) != name.npos; });
      const bool is_matrix = catalog.entries[i].shape.size() == 2 && name.ends_with(".weight");
      if (is_matrix && !is_named) kinds[number_pattern(name).text].plain.push_back(name);
    } else if (parts[i].values == i) {
      ++kinds[number_pattern(name).text].quantised;
    }
  }
  for (const auto& [pattern, kind] : kinds) {
    if (kind.plain.empty() || kind.quantised <= kind.plain.size()) continue;
    findings.problem(
        "quantisation", kind.plain.front(),
        fmt::format("{} of {} weights {} are not quantised, and config.json does not except them "
                    "(modules_to_not_convert): {}",
                    kind.plain.size(), kind.plain.size() + kind.quantised, pattern,
                    some_of(kind.plain, 3)),
        "name them in quantization_config, or take the quantised weights");
  }
}

void check_quantisation(const Checkpoint& checkpoint, const json& config, Findings& findings) {
  const auto quantisation =
      quantisation_of(&config, *checkpoint.catalog->file_system, checkpoint.path);
  const std::vector<QuantisedPart> parts =
      quantised_parts(checkpoint.catalog, quantisation ? quantisation->bits : 0);
  const std::string what =
      quantisation_mismatch(quantisation, has_quantised_weights(checkpoint.catalog));
  if (!what.empty()) {
    findings.problem("quantisation", "quantization_config", what,
                     quantisation ? "remove quantization_config, or take the quantised weights"
                                  : "copy quantization_config from the original config.json");
  }
  check_excepted(checkpoint.catalog, parts, config, findings);
  // Other methods say by targets and patterns which weights are quantised.
  if (quantisation && quantisation->method == "fp8") {
    check_left_plain(checkpoint.catalog, parts, config, findings);
  }
}

}  // namespace

void check_config(const Checkpoint& checkpoint, const json& config, const KnownModel* known,
                  Loader loader, Findings& findings) {
  check_names(config, loader, findings);
  check_dtype(checkpoint.catalog, config, findings);
  check_tie(checkpoint.catalog, config, known, loader, findings);
  check_parts(checkpoint.catalog, config, findings);
  check_quantisation(checkpoint, config, findings);
}

}  // namespace ferry
