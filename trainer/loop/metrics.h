// The figures of an iteration for programs: as TensorBoard's scalars under Megatron-LM's names, and
// as a JSON object a line.
//
// Source: Megatron-LM megatron/training/training.py (training_log, evaluate_and_print_results).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/loop/training_log.h"

namespace ferry {

struct Scalar {
  std::string name;
  double value = 0;
  int64_t step = 0;  // an iteration, or consumed samples ("... vs samples")
};

/// Of an iteration whose number --tensorboard-log-interval divides. `line` holds the iteration's
/// own figures, with `line.losses` of this iteration alone; those that are not there are left out.
std::vector<Scalar> training_scalars(const TrainArguments& arguments, const TrainingLine& line);
/// Of an iteration that is logged, but for a process's first: time and throughput, averaged.
std::vector<Scalar> timing_scalars(const TrainArguments& arguments, const TrainingLine& line);
std::vector<Scalar> validation_scalars(const TrainArguments& arguments, const NamedLosses& losses,
                                       int64_t iteration, int64_t consumed_samples);

/// {"iteration": 5, "consumed_samples": 40, "lm loss": 5.5, ...} and a newline; what is not finite
/// is null.
std::string metrics_json(const TrainingLine& line);
std::string validation_json(const NamedLosses& losses, int64_t iteration, int64_t consumed_samples);

}  // namespace ferry
