// One iteration: passes, the optimizer's step, and what is told of both.
#pragma once

#include "trainer/checkpoint/checkpoint_sink.h"
#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/loop/trained_model.h"

namespace ferry {

/// One of each rank; all ranks call it alike.
class TrainingStep {
 public:
  TrainingStep(const TrainArguments& arguments, TrainedModel& model, RunLog& log,
               CheckpointSink& sink, int rank);

  /// Takes `position` one iteration on, of `iterations` that the run has. The host waits once, for
  /// the loss, when all of the step has been asked for. A loss, or in other types than fp16 a
  /// gradient, that is not finite is thrown on all ranks (invalid).
  void run(RunPosition& position, const IterationBatch& batch, int64_t iterations);

 private:
  void take(RunPosition& position, const IterationBatch& batch, int64_t iterations);
  StepRates rates(const RunPosition& position, double divisor) const;
  TrainingLine line_of(const RunPosition& position, const StepSamples& samples,
                       const std::vector<LossSum>& losses, const StepResult& result);
  template <typename Act>
  void timed(const char* name, const Act& act);
  void tell_operation_times(int64_t iteration);
  void check_finite(const RunPosition& position, const LossSum& loss) const;
  void check_finite(const RunPosition& position, const StepResult& result) const;

  const TrainArguments& arguments_;
  TrainedModel& model_;
  RunLog& log_;
  CheckpointSink& sink_;
  kernels::Kernels& kernels_;
  Optimizer optimizer_;
  bool is_first_rank_, is_profiled_;
};

}  // namespace ferry
