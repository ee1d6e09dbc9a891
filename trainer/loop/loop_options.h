// Turns the arguments of a run into the options of the loop.
#pragma once

#include <string>
#include <vector>

#include "trainer/arguments/train_arguments.h"
#include "trainer/optimizer/optimizer.h"

namespace ferry {

/// invalid for inconsistent batch sizes, schedules and lists, which would make the run fail later.
void check_loop(const TrainArguments& arguments);

/// Warnings, one sentence each, about probably unintended settings, with figures.
std::vector<std::string> loop_warnings(const TrainArguments& arguments);

OptimizerOptions optimizer_options(const TrainArguments& arguments);

/// How optimizer state and gradients are stored and sharded.
ModelStateOptions optimizer_state_options(const TrainArguments& arguments);

}  // namespace ferry
