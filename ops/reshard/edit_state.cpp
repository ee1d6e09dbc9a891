#include "ops/reshard/edit_state.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/base/glob.h"
#include "ckpt/megatron/state/edit.h"
#include "ops/write_options.h"

namespace ferry {
namespace {

void require_matches(const RunState& state, const std::vector<std::string>& patterns,
                     std::string_view name) {
  for (const std::string& pattern : patterns) {
    const bool any =
        std::any_of(state.tensors.begin(), state.tensors.end(), [&](const StateTensor& tensor) {
          return glob_matches(pattern, tensor.name) ||
                 glob_matches(pattern, model_name(tensor.name));
        });
    if (any) continue;
    fail(ErrorKind::invalid, "{} '{}' matches no tensor; inspect lists their names ({})",
         option(name), pattern, option("tensors"));
  }
}

void rename(RunState& state, const ReshardOptions& options) {
  std::vector<bool> used(options.renames.size());
  rename_tensors(state,
                 [&](std::string_view name) { return renamed(name, options.renames, &used); });
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    fail(ErrorKind::invalid, "{} '{}={}' matches no tensor of the model", option("renames"),
         options.renames[i].first, options.renames[i].second);
  }
}

}  // namespace

void edit_state(RunState& state, const ReshardOptions& options) {
  require_matches(state, options.only, "only");
  require_matches(state, options.drop, "drop");
  if (!options.only.empty()) {
    keep_tensors(state, [&](std::string_view name) { return matches_any(options.only, name); });
  }
  if (!options.drop.empty()) {
    drop_tensors(state, [&](std::string_view name) { return matches_any(options.drop, name); });
  }
  if (state.tensors.empty()) {
    fail(ErrorKind::invalid, "{} and {} leave no tensor", option("only"), option("drop"));
  }
  if (!options.renames.empty()) rename(state, options);
  if (options.dtype) cast_model(state, *options.dtype);
}

}  // namespace ferry
