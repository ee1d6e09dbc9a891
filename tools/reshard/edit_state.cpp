#include "tools/reshard/edit_state.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/megatron/state/edit.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

void require_matches(const RunState& state, const std::vector<std::string>& patterns,
                     std::string_view option) {
  for (const std::string& pattern : patterns) {
    const bool any =
        std::any_of(state.tensors.begin(), state.tensors.end(), [&](const StateTensor& tensor) {
          return glob_matches(pattern, tensor.name) ||
                 glob_matches(pattern, model_name(tensor.name));
        });
    if (any) continue;
    fail(ErrorKind::invalid, "{} '{}' matches no tensor; `ferry inspect --tensors` lists them",
         option, pattern);
  }
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return glob_matches(pattern, name); });
}

// A new name by an old and a new one: whole names, or both with one '*', which stands for the same
// text. Nothing when `name` does not match `from`.
std::optional<std::string> rename_of(std::string_view name, std::string_view from,
                                     std::string_view to) {
  const size_t star = from.find('*');
  if (star == std::string_view::npos) {
    return name == from ? std::optional(std::string(to)) : std::nullopt;
  }
  const std::string_view before = from.substr(0, star), after = from.substr(star + 1);
  if (name.size() < before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after)) {
    return std::nullopt;
  }
  const std::string_view kept =
      name.substr(before.size(), name.size() - before.size() - after.size());
  std::string renamed(to);
  if (const size_t at = renamed.find('*'); at != std::string::npos) renamed.replace(at, 1, kept);
  return renamed;
}

void rename(RunState& state, const ReshardOptions& options) {
  std::vector<bool> used(options.renames.size());
  rename_tensors(state, [&](std::string_view name) {
    for (size_t i = 0; i < options.renames.size(); ++i) {
      const auto& [from, to] = options.renames[i];
      if (const auto renamed = rename_of(name, from, to)) {
        used[i] = true;
        return *renamed;
      }
    }
    return std::string(name);
  });
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    fail(ErrorKind::invalid, "--rename '{}={}' matches no tensor of the model",
         options.renames[i].first, options.renames[i].second);
  }
}

}  // namespace

void edit_state(RunState& state, const ReshardOptions& options) {
  require_matches(state, options.only, "--only");
  require_matches(state, options.drop, "--drop");
  if (!options.only.empty()) {
    keep_tensors(state, [&](std::string_view name) { return matches_any(options.only, name); });
  }
  if (!options.drop.empty()) {
    drop_tensors(state, [&](std::string_view name) { return matches_any(options.drop, name); });
  }
  if (state.tensors.empty()) fail(ErrorKind::invalid, "--only and --drop leave no tensor");
  if (!options.renames.empty()) rename(state, options);
  if (options.dtype) cast_model(state, *options.dtype);
}

}  // namespace ferry::tool
