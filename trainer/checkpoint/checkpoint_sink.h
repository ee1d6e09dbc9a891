// Where the checkpoints of a run go: to a run folder (run_folder_sink.h), or where a program puts them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckpt/megatron/state/run_state.h"
#include "ckpt/memory/region.h"
#include "trainer/schedule/exit.h"

namespace ferry {

/// One of each rank; all ranks call it alike.
class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;

  /// Before the first step: what will be saved, so that memory for it can be taken, and the
  /// checkpoint that the run goes on from; empty: it begins anew.
  virtual void prepare(std::span<const ConstRegion> regions, const std::string& loaded) {
    static_cast<void>(regions);
    static_cast<void>(loaded);
  }
  /// Of a kind other than none. `tensors` is what this rank has of the model and the optimizer;
  /// `state`, the same on all ranks, all that is no tensor, and `state.iteration` when.
  virtual void save(SaveKind kind, std::vector<ConstRegion> tensors, RunState state) = 0;
  /// Before any of the memory that is saved changes.
  virtual void wait_for_copy() {}
  /// Persistent iterations that are on disk and were not told yet.
  virtual std::vector<int64_t> take_committed() { return {}; }
  /// Waits until all are on disk.
  virtual void finish() {}
};

}  // namespace ferry
