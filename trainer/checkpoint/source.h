// What a run begins with, opened.
#pragma once

#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/state/run_state.h"
#include "trainer/arguments/namespace.h"

namespace ferry {

/// A checkpoint, and its tensors as the run has them.
struct Source {
  Checkpoint checkpoint;
  RunState state;  // of it
  /// Iteration 0 and a new optimizer follow: progress and optimizer state are not read.
  bool weights_only = false;
  ConsumedSamples consumed;  // by the run that saved it, where it tells
  /// Parameters whose names begin so are not asked of the checkpoint: they begin as in a run
  /// without one.
  std::vector<std::string> skipped_prefixes;
};

}  // namespace ferry
