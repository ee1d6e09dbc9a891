#include "ops/convert/source.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/base/glob.h"
#include "ckpt/checkpoint.h"
#include "convert/check/names.h"
#include "ops/write_options.h"

namespace ferry {

Checkpoint open_source(const std::shared_ptr<const FileSystem>& file_system,
                       const std::string& path, const ConvertOptions& options) {
  const bool keeps_names = options.as_is || options.to == ConvertTarget::safetensors;
  Checkpoint checkpoint = keeps_names ? open_checkpoint(file_system, path, options.open)
                                      : open_model(file_system, path, options.open);
  const bool is_checked = options.to != ConvertTarget::safetensors;  // when it is planned
  if (!is_checked && !options.ignore_index) require_index(checkpoint);
  return checkpoint;
}

bool is_read_as_state_dict(const Checkpoint& checkpoint, const ConvertOptions& options) {
  if (is_state_dict(checkpoint)) return true;
  if (checkpoint.format != Format::hugging_face) return false;
  return options.family || !options.config_folder.empty() || !options.only.empty() ||
         !options.renames.empty() || options.drop_unknown;
}

StateDict open_state_dict(const Checkpoint& checkpoint, const ConvertOptions& options) {
  const auto& entries = checkpoint.catalog->entries;
  for (const std::string& pattern : options.only) {
    const bool any = std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) {
      return glob_matches(pattern, entry.name);
    });
    if (any) continue;
    fail(ErrorKind::invalid, "{} '{}' matches no tensor; inspect lists their names ({})",
         option("only"), pattern, option("tensors"));
  }
  std::vector<bool> used(options.renames.size());
  StateDictOptions state_dict;
  if (!options.only.empty()) {
    state_dict.is_chosen = [&](std::string_view name) { return matches_any(options.only, name); };
  }
  if (!options.renames.empty()) {
    state_dict.rename = [&](std::string_view name) {
      return renamed(name, options.renames, &used);
    };
  }
  state_dict.config_folder = options.config_folder;
  state_dict.fill_from = options.fill_from;
  state_dict.family = options.family;
  state_dict.ignored_members = options.ignored_members;
  state_dict.optimizer = options.optimizer;
  state_dict.language_part = options.to != ConvertTarget::hugging_face;
  state_dict.drop_unknown = options.drop_unknown;
  state_dict.base_only = options.base_only;
  StateDict result = read_state_dict(checkpoint, state_dict);
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    fail(ErrorKind::invalid, "{} '{}={}' matches no tensor of the model", option("renames"),
         options.renames[i].first, options.renames[i].second);
  }
  return result;
}

}  // namespace ferry
