#include "convert/recognise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/io/file_system.h"
#include "ckpt/megatron/model/hybrid_layers.h"
#include "ckpt/megatron/state/vocabulary.h"
#include "convert/arguments/arguments.h"
#include "convert/check/mtp.h"
#include "convert/config/expressible.h"
#include "convert/config_json.h"
#include "convert/config_value.h"
#include "convert/export.h"
#include "convert/language_part.h"
#include "convert/model/mismatch.h"
#include "convert/model/types.h"
#include "convert/tokenizer.h"

namespace ferry {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr size_t kFarNames = 3;  // edits between names that are not near

std::string lines(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += "\n  " + sentence;
  return text;
}

std::string names_of_families() {
  std::string text;
  for (const std::string& name : export_families()) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The family that can express most of a model, and why it cannot express the rest.
std::pair<const Family*, std::vector<std::string>> nearest_family(const Architecture& a) {
  const Family* nearest = nullptr;
  std::vector<std::string> fewest;
  for (const Family* family : families()) {
    std::vector<std::string> reasons = unsupported_reasons(*family, a);
    if (nearest == nullptr || reasons.size() < fewest.size()) {
      nearest = family;
      fewest = std::move(reasons);
    }
    if (fewest.empty()) break;
  }
  return {nearest, std::move(fewest)};
}

// Why a hybrid model is of no family though a GPT that computes the same is of one; else nothing.
std::vector<std::string> in_hybrid_layers(const Architecture& a) {
  const std::optional<LayerKind> mlp = mlp_of_gpt(a.kinds);
  if (!mlp || a.mtp_layers > 0) return {};
  Architecture gpt = a;
  gpt.kinds.clear();
  gpt.layers = static_cast<int64_t>(a.kinds.size() / 2);
  gpt.moe_layers.assign(a.kinds.size() / 2, mlp == LayerKind::mixture);
  const auto [family, reasons] = nearest_family(gpt);
  if (!reasons.empty()) return {};
  return {fmt::format("it is {} with attention and {} in layers of their own; reshard it with {}",
                      family->name, mlp == LayerKind::mlp ? "MLPs" : "experts",
                      option("model", "gpt"))};
}

void summarise(const Architecture& a, ModelSummary& summary) {
  summary.layers = a.layers;
  summary.hidden = a.hidden;
  summary.heads = a.heads;
  summary.kv_heads = a.groups;
  summary.head_dim =
      a.mla ? checked_add(a.qk_nope_dim, a.qk_rope_dim, "size of a head") : a.head_dim;
  summary.ffn_hidden = a.ffn;
  summary.vocab = a.vocab;
  summary.padded_vocab = a.padded_vocab;
  summary.experts = a.experts;
  if (a.experts > 0) {
    summary.experts_per_token = a.experts_per_token;
    summary.expert_ffn_hidden = a.expert_ffn;
    summary.shared_expert_ffn_hidden = a.shared_ffn;
  }
  summary.mtp_layers = a.mtp_layers;
  summary.sequence = a.positions;
  summary.tied_embeddings = a.tied;
}

void recognise_arguments(const Checkpoint& checkpoint, ModelSummary& summary) {
  ReadArguments read = read_arguments(checkpoint.args.value, checkpoint.path);
  read.architecture.vocab = vocabulary_of_arguments(checkpoint.args.value);
  auto [family, reasons] = nearest_family(read.architecture);
  if (reasons.empty() && read.problems.empty()) {
    summary.family = family->name;
  } else {
    summary.reasons = in_hybrid_layers(read.architecture);
    std::ranges::move(read.problems, std::back_inserter(summary.reasons));
    for (std::string& reason : reasons) {
      summary.reasons.push_back("nearest is " + family->name + ": " + reason);
    }
  }
  summarise(read.architecture, summary);
}

// The shape that the configuration of any model gives, in the words that most of them use; of a
// model of several parts, that of its language model.
void summarise_unknown(const nlohmann::json& config, ModelSummary& summary) {
  const nlohmann::json& text = language_config(config);
  const auto first_of = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      const int64_t value = integer_of(text, key, 0);
      if (value > 0) return value;
    }
    return int64_t{0};
  };
  summary.layers = first_of({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  summary.hidden = first_of({"hidden_size", "n_embd", "d_model"});
  summary.heads = first_of({"num_attention_heads", "n_head", "n_heads"});
  summary.kv_heads = first_of({"num_key_value_heads"});
  summary.head_dim = first_of({"head_dim"});
  summary.ffn_hidden = first_of({"intermediate_size", "n_inner", "ffn_dim"});
  summary.vocab = first_of({"vocab_size"});
  summary.experts = first_of({"num_experts", "num_local_experts", "n_routed_experts"});
  summary.experts_per_token = first_of({"num_experts_per_tok", "top_k_experts"});
  summary.expert_ffn_hidden = first_of({"moe_intermediate_size"});
  if (const auto mtp = counted_mtp(text)) summary.mtp_layers = mtp->layers;
  summary.sequence = first_of({"max_position_embeddings", "n_positions"});
  summary.tied_embeddings = boolean_of(text, "tie_word_embeddings", false);
}

void recognise_config(const Checkpoint& checkpoint, ModelSummary& summary) {
  const std::string path = join(checkpoint.path, "config.json");
  const FileSystem& files = *checkpoint.catalog->file_system;
  if (files.status(path).kind != PathKind::file) {
    summary.reasons.push_back(path + " is missing");
    return;
  }
  const nlohmann::json config = parse_python_json(read_file(files, path, kMaxConfigBytes), path);
  if (!config.is_object()) {
    summary.reasons.push_back(path + " is not a JSON object");
    return;
  }
  const auto type = config.find("model_type");
  const Family* family =
      type != config.end() && type->is_string() ? find_family(type->get<std::string>()) : nullptr;
  if (family == nullptr) {
    const std::string architecture = class_name_of(config);
    summary.reasons.push_back(fmt::format("model_type '{}'{} is none of the families",
                                          text_of(config, "model_type", ""),
                                          architecture.empty() ? "" : " (" + architecture + ")"));
    summarise_unknown(config, summary);
    return;
  }
  summary.family = family->name;
  summarise(read_architecture(*family, config), summary);
}

// Describes a config.json of an unknown family: " (GemmaForCausalLM, layers 18, hidden 2048)".
std::string what_config_says(const nlohmann::json& config) {
  ModelSummary summary;
  summarise_unknown(config, summary);
  std::vector<std::string> parts;
  if (const std::string name = class_name_of(config); !name.empty()) parts.push_back(name);
  const auto add = [&](const char* what, int64_t number) {
    if (number > 0) parts.push_back(fmt::format("{} {}", what, number));
  };
  add("layers", summary.layers);
  add("hidden", summary.hidden);
  add("heads", summary.heads);
  add("experts", summary.experts);
  return parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, ", "));
}

}  // namespace

std::vector<std::string> export_families() {
  std::vector<std::string> names;
  for (const Family* family : families()) names.push_back(family->name);
  std::sort(names.begin(), names.end());
  return names;
}

const Family& named_family(const std::string& name) {
  if (const Family* family = find_family(name)) return *family;
  std::string near;
  for (const std::string& each : export_families()) {
    const bool is_part = name.size() > 2 && (each.find(name) == 0 || name.find(each) == 0);
    if (!is_part && edit_distance(name, each, kFarNames) >= kFarNames) continue;
    near += (near.empty() ? "" : ", ") + each;
  }
  fail(ErrorKind::invalid, "family {} is unknown{}; the families are {}", name,
       near.empty() ? "" : "; near it are " + near, names_of_families());
}

const Family& choose_family(const Architecture& architecture,
                            const std::optional<std::string>& requested, const std::string& path) {
  if (!requested) {
    auto [family, reasons] = nearest_family(architecture);
    if (reasons.empty()) return *family;
    if (std::vector<std::string> why = in_hybrid_layers(architecture); !why.empty()) {
      reasons = std::move(why);
    }
    fail(ErrorKind::mismatch,
         "{}: the model is of no family that can be written ({}); nearest is {}:{}", path,
         names_of_families(), family->name, lines(reasons));
  }
  const Family& family = named_family(*requested);
  const std::vector<std::string> reasons = unsupported_reasons(family, architecture);
  if (reasons.empty()) return family;
  fail(ErrorKind::mismatch, "{}: the model is not of family {}:{}", path, *requested,
       lines(reasons));
}

FamilyChoice choose_family(const nlohmann::json& config,
                           const std::optional<std::string>& requested, const std::string& path) {
  using How = FamilyChoice::How;
  const std::string given = text_of(config, "model_type", "");
  const std::string type =
      given.empty() ? std::string(type_of_class(class_name_of(config))) : given;
  const Family* family = find_family(type);
  if (family != nullptr && (!requested || *requested == type)) return {family, How::its_own};
  if (family != nullptr) {
    fail(ErrorKind::unsupported, "{}: model_type is '{}', not '{}'", path, type, *requested);
  }
  const SameType* same = same_type(type);
  if (requested && same != nullptr && *requested == same->family) {
    return {&named_family(*requested), How::same, same->defaults};
  }
  if (requested && same == nullptr && !computes_otherwise(type)) {
    // A window that the file does not mention is the family's class's own.
    return {&named_family(*requested), How::forced, R"({"sliding_window": null})"};
  }
  if (requested) named_family(*requested);
  const std::string found =
      given.empty() ? "model_type is missing" + what_config_says(config) +
                          (type.empty() ? "" : fmt::format("; its class is that of '{}'", type))
                    : fmt::format("model_type is '{}'{}", type, what_config_says(config));
  if (same != nullptr) {
    fail(ErrorKind::unsupported, "{}: {}, which computes what {} does: {} reads it as that", path,
         found, same->family, option("family", same->family));
  }
  if (computes_otherwise(type)) {
    const std::string_view why = why_not_in_megatron(type);
    fail(ErrorKind::unsupported,
         "{}: {}, which computes otherwise than the families that can be read ({}), whatever its "
         "members say{}{}. Converting with {} writes it in another form",
         path, found, names_of_families(), why.empty() ? "" : ": ", why,
         option("to", "hugging_face"));
  }
  fail(ErrorKind::unsupported,
       "{}: {}; those that can be read are {}. If its class computes what one of these does, "
       "{} reads it as that",
       path, found, names_of_families(), option("family", "NAME"));
}

ModelSummary recognise(const Checkpoint& checkpoint) {
  ModelSummary summary;
  try {
    if (checkpoint.format == Format::hugging_face) {
      recognise_config(checkpoint, summary);
    } else if (!checkpoint.args.value.is_none()) {
      recognise_arguments(checkpoint, summary);
    } else {
      summary.reasons.push_back("the checkpoint holds no arguments or configuration of a model");
    }
  } catch (const Error& error) {
    summary.reasons.push_back(error.what());
  }
  return summary;
}

}  // namespace ferry
