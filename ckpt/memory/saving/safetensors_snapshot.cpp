// Snapshots as safetensors files.
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face_layout.h"
#include "ckpt/format/hugging_face/safetensors_plan.h"
#include "ckpt/memory/save.h"
#include "ckpt/memory/snapshot_format.h"

namespace ferry {
namespace {

using NamedFiles = std::vector<std::pair<std::string, std::string>>;

// A rank has no more than its own memory to write from.
void check_whole(const Entry& entry) {
  int64_t elements = 0;
  for (const Chunk& chunk : entry.chunks) elements += chunk.elements(entry.name);
  if (elements == element_count(entry.shape, entry.name)) return;
  fail(ErrorKind::invalid,
       "tensor {} of shape {}: a rank gives {} of its elements, and safetensors files are written "
       "from whole tensors; gather it first, or save a PyTorch distributed checkpoint and convert "
       "that",
       entry.name, to_string(entry.shape), elements);
}

class SafetensorsFormat final : public CommonFilesFormat {
 public:
  SafetensorsFormat(uint64_t max_shard_bytes, NamedFiles small_files)
      : max_shard_bytes_(max_shard_bytes), small_files_(std::move(small_files)) {}

  PlannedOutput plan(Catalog source, int64_t) const override {
    for (const Entry& entry : source.entries) check_whole(entry);
    SafetensorsOptions options;
    options.optimizer = true;
    options.max_shard_bytes = max_shard_bytes_;
    SafetensorsExport planned = plan_safetensors(std::move(source), options);
    PlannedOutput output{std::move(planned.plan), small_files_, {}, {}};
    if (!planned.index_json.empty()) {
      output.small_files.emplace_back(kSafetensorsIndexName, std::move(planned.index_json));
    }
    return output;
  }

 private:
  uint64_t max_shard_bytes_;
  NamedFiles small_files_;
};

}  // namespace

std::shared_ptr<const SnapshotFormat> safetensors_format(uint64_t max_shard_bytes,
                                                         NamedFiles small_files) {
  return std::make_shared<const SafetensorsFormat>(max_shard_bytes, std::move(small_files));
}

}  // namespace ferry
