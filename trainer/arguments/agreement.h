// Whether the processes of a run were given the same arguments.
#pragma once

#include <string>

#include "trainer/arguments/train_arguments.h"

namespace ferry {

/// What all ranks must agree on, one line each: the values of all arguments that are used; of paths
/// and --device, which may differ between hosts, only whether they were given.
std::string agreement_text(const TrainArguments& arguments);

/// mismatch, naming what differs, unless `own` (of this process, rank `rank`) equals `first` (of
/// rank 0). Ranks with different arguments would deadlock, or silently train different models.
void check_agreement(const std::string& own, const std::string& first, int rank);

}  // namespace ferry
