// Snapshots as plain PyTorch distributed checkpoints.
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/memory/snapshot.h"

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

}  // namespace

PlannedOutput plan_dcp_snapshot(GatheredState state) {
  for (const PlacedTensor& placed : state.tensors) check_name(placed.tensor.name);
  for (const PlacedObject& object : state.objects) check_name(object.name);
  DcpWriteOptions options;
  options.files_per_rank = state.files_per_rank;
  options.planner_data = dcp_paths(state.tensors, state.objects);
  return lay_out_dcp(*state.source, std::move(state.tensors), std::move(state.objects), options);
}

}  // namespace ferry
