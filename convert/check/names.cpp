#include "convert/check/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "convert/adapters.h"
#include "convert/check/known_model.h"
#include "convert/config_value.h"
#include "convert/state_dict/prefix.h"

namespace ferry {
namespace {

// Modules that hold the language model of a model with several parts.
constexpr std::string_view kNestedModules[] = {"language_model.", "model."};

// Repetitions of a module inside itself, as a save of a wrapped model inside another makes them,
// become one; more than two of any name, or two of those above.
std::string without_repetitions(std::string name) {
  for (size_t at = 0; at < name.size();) {
    const size_t dot = name.find('.', at);
    if (dot == std::string::npos) break;
    const std::string part = name.substr(at, dot + 1 - at);
    size_t count = 1;
    while (name.compare(at + count * part.size(), part.size(), part) == 0) ++count;
    const bool is_part = std::find(std::begin(kNestedModules), std::end(kNestedModules), part) !=
                         std::end(kNestedModules);
    const bool is_number = part.find_first_not_of("0123456789.") == std::string::npos;
    if (!is_number && (count > 2 || (count == 2 && is_part))) {
      name.erase(at, (count - 1) * part.size());
    }
    at += part.size();
  }
  return name;
}

bool has_parts(const nlohmann::json* config) {
  return config != nullptr && std::any_of(config->begin(), config->end(), [](const auto& member) {
           return member.is_object() && member.contains("hidden_size");
         });
}

// For a model whose names are not known here.
void unwrap_unknown(std::vector<std::string>& names, const nlohmann::json* config) {
  const std::string prefix = guess_container(names);
  bool repeated = false;
  for (std::string& name : names) {
    name.erase(0, prefix.size());
    std::string once = without_repetitions(name);
    repeated = repeated || once != name;
    name = std::move(once);
  }
  // A model that is its language model alone has no module of that name.
  if (!repeated || has_parts(config)) return;
  for (std::string& name : names) {
    const size_t at = name.find(kNestedModules[0]);
    if (at == 0 || (at != std::string::npos && name[at - 1] == '.')) {
      name.erase(at, kNestedModules[0].size());
    }
  }
}

void unwrap_known(std::vector<std::string>& names, const KnownModel& model,
                  const std::string& path) {
  const std::unordered_set<std::string> expected = model.names();
  const std::string base(model.family->base_prefix);
  const std::string prefix = find_prefix(names, expected, base, path);
  if (prefix.empty()) return;
  // The prefix of a model inside another may include the name of the model's outermost module.
  const bool is_whole = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name.starts_with(prefix) && expected.contains(name.substr(prefix.size()));
  });
  for (std::string& name : names) {
    if (name.starts_with(prefix)) name.replace(0, prefix.size(), is_whole ? "" : base);
  }
}

// The modules of `before` that `after` has not: "_orig_mod.".
std::string taken_off(const std::string& before, const std::string& after) {
  size_t back = 0;  // of both, from a module's begin on
  for (size_t i = 1; i <= after.size() && before[before.size() - i] == after[after.size() - i];
       ++i) {
    if (i == after.size() || after[after.size() - i - 1] == '.') back = i;
  }
  const std::string_view front = std::string_view(after).substr(0, after.size() - back);
  const size_t shared = before.starts_with(front) ? front.size() : 0;
  return before.substr(shared, before.size() - back - shared);
}

void check_unique(const Checkpoint& checkpoint, const std::vector<std::string>& names) {
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [at, added] = seen.emplace(names[i], i);
    if (added) continue;
    fail(ErrorKind::corrupt,
         "{}: tensors {} and {} are both {} without what wraps their names; one model holds it "
         "once",
         checkpoint.path, checkpoint.catalog->entries[at->second].name,
         checkpoint.catalog->entries[i].name, names[i]);
  }
}

// What the config.json of a folder says.
struct Description {
  std::shared_ptr<const nlohmann::json> config;  // null: there is none
  std::optional<KnownModel> model;               // of a known family
};

// Nothing where it cannot be read.
std::optional<Description> description_of(const Checkpoint& checkpoint) {
  try {
    Description description{
        read_hugging_face_config(*checkpoint.catalog->file_system, checkpoint.path), {}};
    if (description.config) {
      description.model = known_model(*description.config, checkpoint.path);
    }
    return description;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    return std::nullopt;
  }
}

std::string unwrap_names(Checkpoint& checkpoint, const std::optional<Description>& description) {
  if (!description) return {};
  // What wraps a module for an adapter says which tensors are its own: it stays while the adapter
  // does.
  if (has_adapter(checkpoint.catalog)) return {};
  std::vector<Entry>& entries = checkpoint.catalog.edit().entries;
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.push_back(without_wrappers(entry.name));
  if (names.empty()) return {};
  try {
    if (description->model) {
      unwrap_known(names, *description->model, checkpoint.path);
    } else {
      unwrap_unknown(names, description->config.get());
    }
  } catch (const Error&) {
    return {};  // several models in one folder; what its tensors are not is found by the check
  }
  size_t changed = 0, example = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != entries[i].name && changed++ == 0) example = i;
  }
  if (changed == 0) return {};
  check_unique(checkpoint, names);
  const std::string what = taken_off(entries[example].name, names[example]);
  std::string said = fmt::format(
      "the names of {} of {} tensors are wrapped ('{}'), under which transformers finds none of "
      "them; they are read without it: {} is {}",
      changed, entries.size(), what, entries[example].name, names[example]);
  for (size_t i = 0; i < names.size(); ++i) entries[i].name = std::move(names[i]);
  return said;
}

}  // namespace

std::string unwrap_names(Checkpoint& checkpoint) {
  if (checkpoint.format != Format::hugging_face) return {};
  return unwrap_names(checkpoint, description_of(checkpoint));
}

void name_as_model(Checkpoint& checkpoint) {
  if (checkpoint.format != Format::hugging_face) return;
  const std::optional<Description> description = description_of(checkpoint);
  if (std::string note = unwrap_names(checkpoint, description); !note.empty()) {
    checkpoint.notes.insert(checkpoint.notes.begin(), std::move(note));
  }
  if (description && description->model &&
      description->model->name_embedding(checkpoint.catalog.edit())) {
    checkpoint.notes.push_back(
        "the embedding is stored under the name of the output layer, to which config.json ties it");
  }
}

Checkpoint open_model(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                      const OpenOptions& options) {
  Checkpoint checkpoint = open_checkpoint(std::move(file_system), path, options);
  if (!options.raw) name_as_model(checkpoint);
  return checkpoint;
}

}  // namespace ferry
