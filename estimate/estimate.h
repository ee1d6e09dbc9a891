// What training a model takes: parameters, memory, operations, checkpoint sizes, time.
//
// Memory is the trainer's own plan (trainer/language/memory_plan.h) and operations are its own
// count (trainer/schedule/flops.h): there is no second formula.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

struct TrainArguments;  // trainer/arguments/train_arguments.h

struct EstimateOptions {
  /// A checkpoint or run folder of any format, a Hugging Face folder or its config.json, or a file
  /// of Megatron-LM's arguments; empty: `arguments` alone. A Hugging Face model says nothing about
  /// a run: bf16, the distributed optimizer and sequences of at most 4096 tokens are assumed, and
  /// notes say so.
  std::string model = {};
  std::vector<std::string> arguments = {};  // Megatron-LM's, which override those of `model`
  int64_t gpus = 0;                         // 0: as the arguments say
  int64_t gpus_per_node = 8;
  std::optional<uint64_t> gpu_memory_bytes = {};  // with it, layouts that fit are searched for
  std::string gpu = {};                           // measured speeds to use; empty: by the memory
  std::optional<uint64_t> bandwidth_bytes = {};   // of the storage, per second
  std::vector<int64_t> at = {};                   // iterations whose learning rates to report
};

struct ParameterCounts {
  int64_t total = 0;  // the vocabulary's padding included
  int64_t without_padding = 0;
  int64_t active = 0;  // those that a token passes through; all, for dense models
};

/// Bytes of one rank of a pipeline stage; all ranks of a stage are alike.
struct StageMemory {
  int64_t stage = 0;
  int64_t parameter_count = 0;
  int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0;
  int64_t staging = 0;  // host memory, for copies of what is saved
  int64_t total = 0;    // of the memory that the rank computes in
};

/// What the largest stage would take with other recomputation.
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

/// One GPU's training speed, counted as Megatron-LM counts operations (half of causal scores).
struct MeasuredSpeed {
  std::string_view gpu;      // "h200", "h100", "a100"
  std::string_view program;  // "ferry", "Megatron-LM", ...
  std::string_view model;    // with the length of sequences
  double operations_per_token;
  double tokens_per_second;  // of a GPU
  std::string_view source;   // where the figure was published

  double teraflops() const { return operations_per_token * tokens_per_second / 1e12; }
};

struct SpeedEstimate {
  const MeasuredSpeed* from = nullptr;  // the most similar measurement; static
  double tokens_per_second = 0;         // of a GPU, at that one's TFLOP/s
};

struct LayoutChoice {
  int64_t tensor = 1, pipeline = 1, context = 1, expert = 1, data = 1;
  std::string recompute;  // "none", "full"
  int64_t micro_batches = 0;
  int64_t bytes = 0;             // of the stage that takes most
  double bubble = 0;             // part of the time in which a stage waits for others
  double tokens_per_second = 0;  // of a GPU; an order alone where no speed of the model is known
  std::string reason;
};

struct LayoutSearch {
  std::vector<LayoutChoice> fitting;  // best first
  int64_t tried = 0;
  int64_t least_bytes = 0;  // of those that are too large, the smallest's; 0: not known
  std::vector<std::string> notes;
};

struct Estimate {
  std::string what;  // "a config.json of family llama"
  std::vector<std::string> notes;
  std::shared_ptr<const TrainArguments> arguments;  // complete
  ParameterCounts parameters;
  double operations_per_token = 0;
  /// Empty, with the reason in `no_plan`, for a model that the trainer does not support.
  std::vector<StageMemory> stages;
  std::string no_plan;
  std::vector<RecomputeChoice> recompute;
  std::vector<CheckpointSize> checkpoints;
  std::optional<TrainingFigures> training;  // where the arguments say how long it is
  std::optional<SpeedEstimate> speed;
  std::optional<LayoutSearch> layouts;  // with options.gpu_memory_bytes
};

/// invalid or unsupported where ferry train would refuse the arguments, or where options contradict
/// each other; otherwise as open_checkpoint().
Estimate estimate(const EstimateOptions& options);

}  // namespace ferry
