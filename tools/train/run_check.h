// What is checked of a training run before anything is allocated: by ferry train, by its --dry-run,
// and by ferry launch.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trainer/arguments/complete.h"
#include "trainer/arguments/train_arguments.h"
#include "trainer/language/memory_plan.h"

namespace ferry::tool {

/// Complete, or refused. `notes` gets what was changed although it was given.
TrainArguments read_run_arguments(std::span<const std::string> words, const Launch& launch,
                                  std::vector<std::string>& notes);

/// The same without the tokenizer, whose files may be elsewhere: complete_with_tokenizer() follows.
TrainArguments read_arguments_alone(std::span<const std::string> words, const Launch& launch,
                                    std::vector<std::string>& notes);
/// Completes arguments with what the tokenizer's files say.
void complete_with_tokenizer(TrainArguments& arguments);

/// What a run of complete arguments takes, and what it would say of the model (`note`, if not
/// empty). Refuses what it would fail at later.
struct RunPlan {
  RunModel model;
  std::vector<StagePlan> stages;
  std::string note;
};
RunPlan plan_run(const TrainArguments& arguments, bool on_gpus);

}  // namespace ferry::tool
