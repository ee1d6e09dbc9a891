// One iteration: forward and backward passes, the optimizer step, and logging.
#pragma once

#include "trainer/checkpoint/checkpoint_sink.h"
#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/loop/trained_model.h"

namespace ferry {

/// One per rank; all ranks make the same calls.
class TrainingStep {
 public:
  TrainingStep(const TrainArguments& arguments, TrainedModel& model, RunLog& log,
               CheckpointSink& sink, int rank);

  /// Advances `position` by one iteration, of `iterations` in total. The host waits once, for the
  /// loss, when the whole step has been queued. invalid, on all ranks, for a non-finite loss or,
  /// except in fp16, gradient.
  void run(RunPosition& position, const IterationBatch& batch, int64_t iterations);

 private:
  void take(RunPosition& position, const IterationBatch& batch, int64_t iterations);
  StepRates rates(const RunPosition& position, double divisor) const;
  TrainingLine line_of(const RunPosition& position, const StepSamples& samples,
                       const std::vector<LossSum>& losses, const StepResult& result);
  template <typename Act>
  void timed(const char* name, const Act& act);
  void log_operation_times(int64_t iteration);
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
