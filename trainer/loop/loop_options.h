// What the loop is told, out of the run's arguments.
#pragma once

#include <string>
#include <vector>

#include "trainer/arguments/train_arguments.h"
#include "trainer/optimizer/optimizer.h"

namespace ferry {

/// invalid for batches, schedules and lists that do not fit, and that a run would fail at later.
void check_loop(const TrainArguments& arguments);

/// What the run does and its user may not have meant, with the figures: a sentence each.
std::vector<std::string> loop_warnings(const TrainArguments& arguments);

OptimizerOptions optimizer_options(const TrainArguments& arguments);

/// Of the optimizer's state and of gradients: how they are kept, and shared by ranks.
ModelStateOptions optimizer_state_options(const TrainArguments& arguments);

}  // namespace ferry
