// Where a run is.
#pragma once

#include <cstdint>

#include "trainer/checkpoint/run_checkpoint.h"

namespace ferry {

/// The same on all ranks: with the tensors, all that a checkpoint is made of.
struct RunPosition {
  RunProgress progress;
  Schedule schedule;
  int64_t consumed = 0, skipped = 0;  // samples of training, and those of them that were left out
  int64_t consumed_valid = 0;
  int64_t last_saved = 0;  // iteration; where the run began, before the first save
};

}  // namespace ferry
