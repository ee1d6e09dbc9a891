#include "ops/diff/tensor_view.h"

#include <algorithm>

#include "convert/export.h"

namespace ferry {
namespace {

// Embeddings and output layers, whatever stands before (the optimizer's states have the same rows).
bool is_vocabulary(const std::string& name) {
  static constexpr std::string_view kNames[] = {"word_embeddings.weight", "output_layer.weight",
                                                "output_layer.bias",      "embed_tokens.weight",
                                                "lm_head.weight",         "wte.weight"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](std::string_view end) { return name.ends_with(end); });
}

// A box of a view, of one element along the first axis, which is left out.
void take_part(const TensorView& view, const Box& box, TensorView& part) {
  part.dtype = view.dtype;
  part.shape.assign(box.size.begin() + 1, box.size.end());
  part.vocabulary = view.vocabulary;
  part.recipe = recipe_of_part(view.recipe, view.shape, box);
}

}  // namespace

std::vector<TensorView> stored_views(const Catalog& catalog) {
  std::vector<TensorView> views;
  views.reserve(catalog.entries.size());
  for (uint32_t i = 0; i < catalog.entries.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    Recipe recipe{{i}, {copy_all(entry.shape)}, {}};
    views.push_back(
        {entry.name, entry.dtype, entry.shape, std::move(recipe), is_vocabulary(entry.name), {}});
  }
  return views;
}

std::vector<TensorView> hugging_face_views(const Checkpoint& checkpoint,
                                           const std::optional<std::string>& family) {
  ExportOptions options;
  options.family = family;
  options.keep_padding = true;
  Export model = plan_export(checkpoint, options);
  Plan& plan = model.plan;
  std::vector<TensorView> views;
  for (size_t i = 0; i < plan.target.entries.size(); ++i) {
    Entry& entry = plan.target.entries[i];
    const std::vector<uint32_t>& inputs = plan.recipes[i].inputs;
    const bool vocabulary = std::any_of(inputs.begin(), inputs.end(), [&](uint32_t input) {
      return is_vocabulary(checkpoint.catalog->entries[input].name);
    });
    views.push_back({std::move(entry.name),
                     entry.dtype,
                     std::move(entry.shape),
                     std::move(plan.recipes[i]),
                     vocabulary,
                     {}});
  }
  for (ConstantTensor& constant : model.constants) {
    TensorView& view = views.emplace_back();
    view.name = std::move(constant.entry.name);
    view.constant = std::move(constant.bytes);
  }
  return views;
}

std::vector<TensorView> unstack(const TensorView& view, size_t position) {
  std::vector<TensorView> parts;
  for (int64_t index = 0; index < view.shape[0]; ++index) {
    TensorView& part = parts.emplace_back();
    part.name = view.name;
    part.name.insert(position, std::to_string(index) + ".");
    Box layer = Box::whole(view.shape);
    layer.offset[0] = index;
    layer.size[0] = 1;
    take_part(view, layer, part);
  }
  return parts;
}

std::vector<TensorView> split_experts(const TensorView& view, std::vector<ExpertPart> experts) {
  std::vector<TensorView> parts;
  for (ExpertPart& expert : experts) {
    TensorView& part = parts.emplace_back();
    part.name = std::move(expert.name);
    take_part(view, expert.box, part);
  }
  return parts;
}

}  // namespace ferry
