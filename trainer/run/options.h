// What each part of a run is told, out of the run's arguments.
#pragma once

#include "trainer/arguments/train_arguments.h"
#include "trainer/checkpoint/run_model.h"
#include "trainer/data/data_options.h"
#include "trainer/data/sampler.h"
#include "trainer/optimizer/model_state.h"
#include "trainer/parallel/pipeline.h"
#include "trainer/rank/loop_options.h"

namespace ferry {

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
