// What training a model takes: parameters, memory, operations, checkpoints, time.
//
// Memory is the trainer's own plan (trainer/language/memory_plan.h) and operations are its own
// count (trainer/schedule/flops.h): there is no second formula.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/estimate/estimate_source.h"
#include "tools/estimate/measured_speeds.h"
#include "trainer/language/memory_plan.h"

namespace ferry::tool {

struct EstimateOptions {
  int64_t gpus = 0;  // 0: as the arguments say
  int64_t gpus_per_node = 8;
  std::optional<uint64_t> gpu_memory_bytes;  // with it, layouts are looked for
  std::string gpu;                           // whose measured speeds count; empty: by its memory
  std::optional<uint64_t> bandwidth_bytes;   // of the storage, a second
  std::vector<int64_t> at;                   // iterations whose learning rate is told
};

struct ParameterCounts {
  int64_t total = 0;  // the vocabulary's padding included
  int64_t without_padding = 0;
  int64_t active = 0;  // those that a token passes through; of dense models all
};

/// What the stage that takes most would take with other recomputation.
struct RecomputeChoice {
  std::string name;  // "none", "selective (layernorm, mlp)", "full, each layer"
  int64_t activations = 0, bytes = 0;
};

struct CheckpointSize {
  std::string format;  // "torch_dist", "torch", "hf"
  bool has_optimizer = false;
  int64_t bytes = 0;              // of its tensors
  std::optional<double> seconds;  // to save it, or to load it
};

struct TrainingFigures {
  int64_t iterations = 0;
  int64_t global_batch_size = 0, micro_batches = 0;
  int64_t train_samples = 0, validation_samples = 0, test_samples = 0;
  int64_t tokens = 0;
  double operations = 0;
  struct Rate {
    int64_t iteration = 0, samples = 0;
    double learning_rate = 0;
  };
  std::vector<Rate> rates;
};

struct Estimate {
  std::string what;
  std::vector<std::string> notes;
  TrainArguments arguments;  // complete
  ParameterCounts parameters;
  double operations_per_token = 0;
  /// By stage; empty, with the reason in `no_plan`, of a model that the trainer does not compute.
  std::vector<StagePlan> stages;
  std::string no_plan;
  std::vector<RecomputeChoice> recompute;
  std::vector<CheckpointSize> checkpoints;
  std::optional<TrainingFigures> training;  // where the arguments say how long it is
  std::optional<SpeedEstimate> speed;
};

/// Of the arguments' own layout. invalid or unsupported where ferry train would refuse them.
Estimate make_estimate(EstimateSource source, const EstimateOptions& options);

/// Completed for so many ranks; 0: as many as the arguments say.
TrainArguments completed_for(const EstimateSource& source, int64_t ranks,
                             std::vector<std::string>& notes);
kernels::DeviceKind device_kind(const TrainArguments& arguments);
/// Whose measured speeds count.
std::string gpu_of(const EstimateOptions& options);
/// Of the stage that takes most.
const StagePlan& largest(const std::vector<StagePlan>& stages);

std::vector<CheckpointSize> checkpoint_sizes(const TrainArguments& arguments,
                                             const std::vector<ModelTensor>& tensors,
                                             const std::vector<StagePlan>& stages,
                                             int64_t parameters_without_padding,
                                             std::optional<uint64_t> bandwidth_bytes);

}  // namespace ferry::tool
