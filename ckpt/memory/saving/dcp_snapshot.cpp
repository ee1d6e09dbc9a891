// Snapshots as plain PyTorch distributed checkpoints.
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/memory/save.h"
#include "ckpt/memory/snapshot_format.h"

namespace ferry {
namespace {

// A checkpoint with such a name and no metadata.json is taken for an unfinished one of Megatron-LM.
void check_name(const std::string& name) {
  if (name.find("/shard_") == std::string::npos) return;
  fail(ErrorKind::invalid,
       "{}: /shard_ in a name marks Megatron-LM's own objects; choose another name, or write "
       "torch_dist",
       name);
}

class DcpFormat final : public OwnFilesFormat {
 public:
  PlacedState place(OwnState own) const override {
    for (const PlacedTensor& placed : own.placed.tensors) check_name(placed.tensor.name);
    for (const PlacedObject& object : own.placed.objects) check_name(object.name);
    return std::move(own.placed);
  }

  SmallFiles complete(DcpContent& content, int64_t) const override {
    std::vector<std::string> keys;
    keys.reserve(content.entries.size());
    for (const DcpContent::Entry& entry : content.entries) keys.push_back(entry.name);
    content.planner_data = dcp_paths(keys);
    return {};
  }
};

}  // namespace

std::shared_ptr<const SnapshotFormat> dcp_format() {
  static const auto format = std::make_shared<const DcpFormat>();
  return format;
}

}  // namespace ferry
