// A state dict that was read, as a Hugging Face folder.
#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/core/recipe_compose.h"
#include "convert/rewrite/rewrite.h"
#include "convert/state_dict/state_dict.h"
#include "convert/tokenizer.h"

namespace ferry {
namespace {

// What of the source is not the model's.
void drop_others(Plan& plan) {
  std::vector<int64_t> used(plan.source->entries.size());
  for (const Recipe& recipe : plan.recipes) {
    for (const Move& move : recipe.moves) used[recipe.inputs[move.input]] += move.elements();
  }
  for (uint32_t i = 0; i < used.size(); ++i) {
    const int64_t left = plan.source->entries[i].elements() - used[i];
    if (left > 0) plan.dropped.push_back({i, left});
  }
}

}  // namespace

Export plan_state_dict(const StateDict& state_dict, const ExportOptions& options) {
  if (!state_dict.recipes.empty() && (options.original || !options.quantise.empty())) {
    fail(ErrorKind::invalid,
         "{}: tensors in torchtitan's own names are neither filled up nor quantised on the way; "
         "convert them, and then what became of them",
         state_dict.model.path);
  }
  ExportOptions rewrite = options;
  rewrite.config_folder = state_dict.config_folder;
  rewrite.top_files_only = state_dict.top_files_only;
  Export result = plan_rewrite(state_dict.model, rewrite);
  if (!state_dict.recipes.empty()) {
    for (Recipe& recipe : result.plan.recipes) recipe = compose(recipe, state_dict.recipes);
    result.plan.source = state_dict.source;
    result.plan.dropped.clear();
    drop_others(result.plan);
  }
  result.family = state_dict.family;
  result.warnings.insert(result.warnings.begin(), state_dict.warnings.begin(),
                         state_dict.warnings.end());
  const bool has_tokenizer =
      std::any_of(result.tokenizer_files.begin(), result.tokenizer_files.end(),
                  [](const CopiedFile& file) { return is_tokenizer_file(file.name); });
  if (!has_tokenizer) {
    result.warnings.push_back(fmt::format(
        "there are no tokenizer files next to config.json; {} copies them from elsewhere",
        option("tokenizer_folder", "DIR")));
  }
  return result;
}

}  // namespace ferry
