#include "ckpt/memory/torch_snapshot.h"

#include <utility>

namespace ferry {

SnapshotPlanner torch_dist_snapshot(RunState run, TorchDistOptions options) {
  run.tensors.clear();
  run.dropped.clear();
  return [run = std::move(run), options = std::move(options)](GatheredState gathered) {
    RunState state = run;
    state.source = gathered.source;
    state.iteration = gathered.iteration;
    Placement placement;
    for (PlacedTensor& placed : gathered.tensors) {
      placement[placed.tensor.name] = std::move(placed.pieces);
      state.tensors.push_back(std::move(placed.tensor));
    }
    TorchDistOptions writer = options;
    writer.files_per_rank = gathered.files_per_rank;
    writer.zstd = false;  // bytes go straight from memory to their places
    return plan_torch_dist(std::move(state), placement, std::move(gathered.objects), writer);
  };
}

}  // namespace ferry
