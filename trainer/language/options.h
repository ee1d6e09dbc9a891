// Turns the arguments of a run into the options of its parts.
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

// The model of a run as described by its arguments and its tensors; the same on all ranks.

struct RunModel : StateLayout {
  Architecture architecture;

  /// `args` is an argparse.Namespace; `tensors` are the model's, as named in a checkpoint.
  /// unsupported, naming what the arguments request and the trainer cannot compute; `path` is for
  /// messages.
  RunModel(const Value& args, std::vector<ModelTensor> tensors, const std::string& path);

  const RunArguments& run() const noexcept { return layout.run(); }

 private:
  RunModel(Architecture described, std::vector<ModelTensor> tensors,
           const RunArguments& run_arguments);
};

/// What a model has that families have and that no module of this trainer computes, one sentence
/// each.
std::vector<std::string> untrainable_reasons(const Architecture& architecture);

/// Throws what would make the run fail later: errors of check_loop(), and unsupported, naming
/// features of Megatron-LM under these arguments that this trainer lacks.
void check_run(const TrainArguments& arguments);

DType parameter_dtype(const TrainArguments& arguments);

/// The arguments as stored in a checkpoint, without what a run adds later.
LoadedValue namespace_of(const TrainArguments& arguments);

ModelOptions model_options(const TrainArguments& arguments, const RunModel& model,
                           const GridPlace& place);
ModelStateOptions state_options(const TrainArguments& arguments, const RunModel& model);
PipelineOptions pipeline_options(const TrainArguments& arguments);
/// Only with --fp8-format, for this kind of device.
Float8Options float8_options(const TrainArguments& arguments, const RunModel& model,
                             const kernels::Kernels& kernels);
/// Says that routed experts compute in bf16 in spite of --fp8-format, and why; empty if they do
/// not, or if there are none. `has_grouped_float8`: of the device's kernels.
std::string bf16_experts_note(const TrainArguments& arguments, const Architecture& architecture,
                              bool has_grouped_float8 = true);

DataOptions data_options(const TrainArguments& arguments);
/// For this run's data ranks and a dataset of this many samples.
SamplerOptions sampler_options(const TrainArguments& arguments, SampleOrder order, int64_t samples);

}  // namespace ferry
