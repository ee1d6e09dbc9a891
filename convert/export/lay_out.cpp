#include "convert/export/lay_out.h"

#include <numeric>
#include <utility>

#include "ckpt/core/plan_quantised.h"
#include "ckpt/format/hugging_face/hugging_face_layout.h"

namespace ferry {

// Constants become literals: there is nothing to copy them from. What belongs to a tensor that
// is quantised comes right after it.
void lay_out(ExportedTensors tensors, uint64_t max_shard_bytes, Export& result) {
  std::vector<Entry> entries;
  entries.reserve(tensors.tensors.size());
  for (ExportedTensor& tensor : tensors.tensors) entries.push_back(tensor.entry);
  HuggingFaceLayout layout = lay_out_hugging_face(std::move(entries), max_shard_bytes);
  Plan& plan = result.plan;
  plan.literals = std::move(layout.literals);
  std::vector<Entry> placed = std::exchange(layout.target.entries, {});
  plan.target = std::move(layout.target);
  result.count = layout.count;
  for (size_t i = 0; i < placed.size(); ++i) {
    ExportedTensor& tensor = tensors.tensors[i];
    if (!tensor.constant.empty()) {
      const Extent& extent = placed[i].chunks.front().extent;
      plan.literals.push_back({extent.file, extent.offset, tensor.constant});
      plan.target.objects.push_back({placed[i].name, extent, {}});
      result.constants.push_back({std::move(placed[i]), std::move(tensor.constant)});
      continue;
    }
    plan.target.entries.push_back(std::move(placed[i]));
    plan.recipes.push_back(std::move(tensor.recipe));
    if (auto& quantise = plan.recipes.back().quantise) {
      quantise->parts.resize(parts_of(*quantise).size());
      std::iota(quantise->parts.begin(), quantise->parts.end(),
                static_cast<uint32_t>(plan.recipes.size()));
    }
  }
  plan.dropped = std::move(tensors.dropped);
  if (!layout.index_json.empty()) {
    result.small_files.emplace_back(kSafetensorsIndexName, std::move(layout.index_json));
  }
}

}  // namespace ferry
