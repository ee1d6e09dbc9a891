// One rank of a language model's training run, from its arguments to its end.
//
// All ranks of a run call it alike, as threads of one process or as processes. What it prints and
// writes, and when it ends, is Megatron-LM's (trainer/loop/*.h say where from).
#pragma once

#include "trainer/arguments/train_arguments.h"
#include "trainer/rank/rank_loop.h"
#include "trainer/rank/rank_setup.h"

namespace ferry {

/// As the train() of any model does, with the language model that the arguments describe.
RunEnd train(const TrainArguments& arguments, const RankSetup& setup);

}  // namespace ferry
