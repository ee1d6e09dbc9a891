// One rank of a language model's training run, from its arguments to its end.
//
// All ranks of a run call it alike, as threads of one process or as processes. What it prints and
// writes, and when it ends, is Megatron-LM's (trainer/loop/*.h say where from).
#pragma once

#include "trainer/arguments/train_arguments.h"
#include "trainer/rank/rank_setup.h"

namespace ferry {

/// Trains as `arguments`, which are complete, say, and returns when the run is over or is told to
/// end; what it saved is on disk then. Throws what fails on any rank, on all ranks.
void train(const TrainArguments& arguments, const RankSetup& setup);

}  // namespace ferry
