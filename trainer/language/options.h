// What each part of a run is told, out of the run's arguments.
#pragma once

#include <string>
#include <vector>

#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/architecture.h"
#include "trainer/arguments/train_arguments.h"
#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/data/data_options.h"
#include "trainer/data/sampler.h"
#include "trainer/loop/loop_options.h"
#include "trainer/model/layer.h"
#include "trainer/optimizer/model_state.h"
#include "trainer/parallel/pipeline.h"

namespace ferry {

// The model of a run, as its arguments and its tensors describe it: the same on all ranks.

struct RunModel : StateLayout {
  Architecture architecture;

  /// `args` is an argparse.Namespace; `tensors` are those of the model, as a checkpoint names them.
  /// unsupported, naming it, for what the arguments say and the trainer does not compute; `path` is
  /// for messages.
  RunModel(const Value& args, std::vector<ModelTensor> tensors, const std::string& path);

  const RunArguments& run() const noexcept { return layout.run(); }

 private:
  RunModel(Architecture described, std::vector<ModelTensor> tensors,
           const RunArguments& run_arguments);
};

/// Refuses what a run would fail at later, some of it much: check_loop(), and what Megatron-LM has
/// under these arguments and this trainer has not (unsupported), by name.
void check_run(const TrainArguments& arguments);

DType parameter_dtype(const TrainArguments& arguments);

/// The arguments as a checkpoint has them, without what a run adds on the way.
LoadedValue namespace_of(const TrainArguments& arguments);

ModelOptions model_options(const TrainArguments& arguments, const RunModel& model,
                           const GridPlace& place);
ModelStateOptions state_options(const TrainArguments& arguments, const RunModel& model);
PipelineOptions pipeline_options(const TrainArguments& arguments);
/// With --fp8-format.
Float8Options float8_options(const TrainArguments& arguments, const RunModel& model);

DataOptions data_options(const TrainArguments& arguments);
/// Of this run's data ranks, for a dataset of so many samples.
SamplerOptions sampler_options(const TrainArguments& arguments, SampleOrder order, int64_t samples);

}  // namespace ferry
