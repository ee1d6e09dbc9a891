// Whether the processes of a run were given the same arguments.
#pragma once

#include <string>

#include "trainer/arguments/train_arguments.h"

namespace ferry {

/// What all ranks have to agree on, a line each: values of all arguments that are used; of paths,
/// which may be others on each host, and of --device, whether there is one.
std::string agreement_text(const TrainArguments& arguments);

/// mismatch, naming what differs, where `own` is not what `first` is: those of this process, number
/// `rank`, and of the first one. Ranks with different arguments would wait for each other in vain,
/// or train different models without a word.
void check_agreement(const std::string& own, const std::string& first, int rank);

}  // namespace ferry
