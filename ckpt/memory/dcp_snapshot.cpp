// Snapshots as plain PyTorch distributed checkpoints.
#include <utility>

#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/memory/snapshot.h"

namespace ferry {

PlannedOutput plan_dcp_snapshot(GatheredState state) {
  DcpWriteOptions options;
  options.files_per_rank = state.files_per_rank;
  options.checkpoint_id = state.folder;
  options.planner_data = dcp_paths(state.tensors, state.objects);
  return lay_out_dcp(*state.source, std::move(state.tensors), std::move(state.objects), options);
}

}  // namespace ferry
