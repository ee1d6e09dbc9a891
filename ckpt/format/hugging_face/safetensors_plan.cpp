#include "ckpt/format/hugging_face/safetensors_plan.h"

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/quantised_tensors.h"

namespace ferry {
namespace {

// The numbers of a quantised weight are not its values, and are not made so by another type.
void check_not_quantised(const Catalog& source) {
  const std::vector<QuantisedPart> parts = quantised_parts(source);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].role != QuantisedRole::codes) continue;
    fail(ErrorKind::unsupported,
         "tensor {} is quantised: its elements are values only together with their scales; write "
         "the tensors in their own type, or convert the folder with its config.json ({} {})",
         source.entries[i].name, option("to", "hugging_face"), option("dtype"));
  }
}

}  // namespace

SafetensorsExport plan_safetensors(const SharedCatalog& source, const SafetensorsOptions& options) {
  if (options.dtype) check_not_quantised(source);
  SafetensorsExport result;
  std::vector<Entry> targets;
  for (uint32_t i = 0; i < source->entries.size(); ++i) {
    const Entry& entry = source->entries[i];
    if (entry.role == Role::optimizer && !options.optimizer) continue;
    Entry& target = targets.emplace_back();
    target.name = entry.name;
    target.shape = entry.shape;
    target.role = entry.role;
    const bool cast =
        options.dtype && is_floating_point(entry.dtype) && can_convert(entry.dtype, *options.dtype);
    target.dtype = cast ? *options.dtype : entry.dtype;
    Recipe& recipe = result.plan.recipes.emplace_back();
    recipe.inputs = {i};
    recipe.moves = {copy_all(entry.shape)};
  }
  if (targets.empty()) {
    fail(ErrorKind::not_found, "the checkpoint holds no tensor to write ({} of the optimizer)",
         source->entries.size());
  }
  HuggingFaceLayout layout = lay_out_hugging_face(std::move(targets), options.max_shard_bytes);
  result.plan.source = source;
  result.plan.target = std::move(layout.target);
  result.plan.literals = std::move(layout.literals);
  drop_unused(result.plan, Role::optimizer);
  result.index_json = std::move(layout.index_json);
  result.count = layout.count;
  return result;
}

}  // namespace ferry
