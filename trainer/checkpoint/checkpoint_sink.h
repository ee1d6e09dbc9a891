// Where a run writes its checkpoints: into a run folder (run_folder_sink.h), or wherever a program
// puts them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckpt/megatron/state/run_state.h"
#include "ckpt/memory/region.h"
#include "trainer/schedule/exit.h"

namespace ferry {

/// One per rank; all ranks make the same calls.
class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;

  /// Called before the first step. `regions` will be saved: memory for copies can be allocated now.
  /// `loaded` is the checkpoint that the run resumes from; empty for a new run.
  virtual void prepare(std::span<const ConstRegion> regions, const std::string& loaded) {
    static_cast<void>(regions);
    static_cast<void>(loaded);
  }
  /// Saves a checkpoint; `kind` is not none. `tensors` are this rank's part of the model and the
  /// optimizer; `state`, the same on all ranks, is everything else, with the iteration.
  virtual void save(SaveKind kind, std::vector<ConstRegion> tensors, RunState state) = 0;
  /// Called before any of the saved memory changes.
  virtual void wait_for_copy() {}
  /// Persistent iterations that reached the disk since the last call.
  virtual std::vector<int64_t> take_committed() { return {}; }
  /// Waits until all saves are on disk.
  virtual void finish() {}
};

}  // namespace ferry
