#include <algorithm>
#include <initializer_list>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/masters/weights.h"
#include "ckpt/memory/tensor_set.h"
#include "convert/check/names.h"
#include "ops/convert.h"
#include "ops/convert/check_options.h"
#include "ops/convert/source.h"
#include "ops/convert/to_hugging_face.h"

namespace ferry {
namespace {

struct GivenOption {
  std::string_view name;
  bool given;
};

void refuse_given(std::initializer_list<GivenOption> options, std::string_view why) {
  for (const GivenOption& each : options) {
    if (each.given) fail(ErrorKind::invalid, "{} cannot be used here: {}", option(each.name), why);
  }
}

void check_view_options(const ConvertOptions& options) {
  refuse_given({{"to", options.to != ConvertTarget::hugging_face}},
               "the model is read in the names of Hugging Face");
  refuse_given({{"target", !options.target.empty()},
                {"max_shard_bytes", options.max_shard_bytes != ConvertOptions::kShardBytes},
                {"overwrite", options.write.overwrite},
                {"dry_run", options.write.dry_run}},
               "nothing is written");
  check_options(options);
}

// A tensor of the model and where it would be in the file.
struct PlacedView {
  uint64_t offset;
  StateTensor tensor;
};

// Constants become entries of the source, in memory: whatever reads the others reads them, too.
void add_constants(std::span<const ConstantTensor> constants, SharedCatalog& source,
                   std::vector<PlacedView>& views) {
  if (constants.empty()) return;
  Catalog& catalog = source.edit();
  for (const ConstantTensor& constant : constants) {
    Entry entry = constant.entry;
    Extent& extent = entry.chunks.front().extent;
    const Recipe whole{
        {static_cast<uint32_t>(catalog.entries.size())}, {copy_all(entry.shape)}, {}};
    views.push_back({extent.offset, {entry.name, entry.dtype, entry.shape, whole, entry.role}});
    extent.file = static_cast<uint32_t>(catalog.files.size());
    extent.offset = 0;
    catalog.files.push_back({"constant " + entry.name, constant.bytes.size(),
                             reinterpret_cast<const std::byte*>(constant.bytes.data())});
    catalog.entries.push_back(std::move(entry));
  }
}

// In the order of the file. What recipes write besides is found at its new place.
std::vector<StateTensor> in_order(std::vector<PlacedView> views) {
  std::vector<uint32_t> order(views.size()), places(views.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](uint32_t i) { return views[i].offset; });
  for (uint32_t place = 0; place < order.size(); ++place) places[order[place]] = place;
  std::vector<StateTensor> tensors;
  tensors.reserve(views.size());
  for (const uint32_t i : order) {
    StateTensor& tensor = tensors.emplace_back(std::move(views[i].tensor));
    if (!tensor.recipe.quantise) continue;
    for (uint32_t& part : tensor.recipe.quantise->parts) part = places[part];
  }
  return tensors;
}

TensorSet tensors_of(ModelPlan model) {
  Plan& plan = model.planned.plan;
  std::vector<PlacedView> views;
  views.reserve(plan.recipes.size());
  for (size_t i = 0; i < plan.recipes.size(); ++i) {
    Entry& entry = plan.target.entries[i];
    views.push_back({entry.chunks.front().extent.offset,
                     {std::move(entry.name), entry.dtype, std::move(entry.shape),
                      std::move(plan.recipes[i]), entry.role}});
  }
  const auto constants =
      std::make_shared<const std::vector<ConstantTensor>>(std::move(model.constants));
  add_constants(*constants, plan.source, views);
  return made_tensors(std::move(plan.source), in_order(std::move(views)), constants);
}

ModelView view_of(Checkpoint checkpoint, ConvertOptions options) {
  if (options.from_masters) use_masters_as_weights(checkpoint);
  options.max_shard_bytes = std::numeric_limits<uint64_t>::max();
  ModelPlan model = plan_hugging_face(checkpoint, options);
  check(model.planned.plan);
  std::vector<std::pair<std::string, std::string>> files = std::move(model.planned.small_files);
  std::vector<std::string> warnings = std::move(model.planned.warnings);
  const ParameterCount count = model.count;
  std::string family = std::move(model.family);
  return {std::move(family), tensors_of(std::move(model)), count.parameters, count.integers,
          std::move(files),  std::move(warnings)};
}

}  // namespace

ModelView view_as_hugging_face(const ConvertOptions& options) {
  check_view_options(options);
  return with_paths({options.source, options.config_folder}, [&] {
    return view_of(open_source(posix_file_system(), options.source, options), options);
  });
}

ModelView view_as_hugging_face(const Checkpoint& checkpoint, const ConvertOptions& options) {
  refuse_given(
      {{"source", !options.source.empty()}, {"iteration", !options.open.iteration.empty()}},
      "the checkpoint is open");
  check_view_options(options);
  return with_paths({checkpoint.path, options.config_folder}, [&] {
    Checkpoint model = checkpoint;
    if (!options.as_is) name_as_model(model);
    return view_of(std::move(model), options);
  });
}

}  // namespace ferry
