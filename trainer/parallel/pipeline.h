// One rank's forward and backward passes over the micro-batches of a step.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/model/attention/rope.h"
#include "trainer/model/model_chunk.h"
#include "trainer/parallel/device_batch.h"
#include "trainer/parallel/grid.h"
#include "trainer/parallel/schedule.h"

namespace ferry {

struct PipelineOptions {
  kernels::Type type = kernels::Type::f32;
  int64_t sequences = 1;  // per micro-batch
  int64_t length = 0;     // tokens per sequence
  bool sequence_parallel = false;
  bool resets_attention = false;
  bool per_token_loss =
      false;  // all tokens have the same weight, whatever their micro-batch's number of tokens
  int64_t predictions = 0;      // number of further tokens predicted
  double prediction_scale = 0;  // weight of the loss of each
  double hidden_dropout = 0, attention_dropout = 0;
  int64_t seed = 0;  // for dropout
  Recompute recompute;
};

struct StepLoss {
  double sum = 0;                   // sum of losses of unmasked tokens, over all ranks
  double tokens = 0;                // unmasked
  std::vector<double> predictions;  // by prediction layer: sums of micro-batch means
};

class Pipeline {
 public:
  /// Provides the samples of a micro-batch of this data rank.
  using Source = std::function<void(int64_t micro_batch, Batch& batch)>;
  /// Losses by their names in logs.
  using Losses = std::vector<std::pair<std::string, double>>;

  /// `chunks` are the virtual stages of this rank.
  Pipeline(std::vector<ModelChunk> chunks, const Architecture& architecture, Grid& grid,
           kernels::Kernels& kernels, const PipelineOptions& options);
  ~Pipeline();

  /// Sets an observer of forward passes and of the backward passes of a step's last micro-batches;
  /// may be null.
  void set_watcher(PassWatcher* watcher) { watcher_ = watcher; }

  /// Before train(): resets the experts' counts. Dropout depends on the step number.
  void begin_step(int64_t number);

  /// Adds the gradient of the mean loss, times `loss_scale` and gradient_divisor(), to the
  /// parameters' gradients: this rank's part of the sum over data-parallel ranks. Does not wait for
  /// kernels except for the counts of experts' tokens.
  void train(int64_t micro_batches, double loss_scale, const Source& source);
  /// With per_token_loss the number of unmasked tokens over all ranks, known once all were read;
  /// otherwise 1. Called by all ranks after train(). Does not wait for kernels.
  double gradient_divisor();
  /// The losses of train(), after waiting for it. Called by all ranks.
  StepLoss losses();
  /// After losses(): auxiliary losses by their names in logs: means over layers of the routers'
  /// losses, and the losses of prediction layers. Updates the experts' biases. Called by all ranks.
  Losses end_step(int64_t micro_batches);

  /// Where to store the last micro-batch's logits from now on: [rows, columns of the rank].
  void keep_logits(kernels::Array logits) { logits_ = logits; }

  /// The losses alone.
  StepLoss evaluate(int64_t micro_batches, const Source& source);

  /// Bytes of activations, and operations of a step on this rank.
  struct Plan {
    int64_t activation_bytes = 0;
    /// Workspace of attention gradients on a GPU: of our own kernels, and of a library's for the
    /// cases that it supports.
    int64_t attention_bytes = 0, fused_attention_bytes = 0;
    double operations = 0;
  };
  Plan plan(int64_t micro_batches);

 private:
  struct Slot;
  struct Sizes {
    int64_t kept = 0, scratch = 0, transient = 0, attention = 0, fused_attention = 0;
    double operations = 0;
  };

  PassValues pass_values() const;
  Pass pass_of(Slot& slot);
  Sizes measure(const ModelChunk& chunk);
  void prepare(const std::vector<PipelineAction>& schedule);
  void run(const std::vector<PipelineAction>& schedule, double loss_scale, const Source& source);
  void forward(Slot& slot, const PipelineAction& action, double loss_scale, const Source& source);
  void backward(Slot& slot, const PipelineAction& action);
  Losses router_losses(int64_t micro_batches);
  double tokens();
  void download_losses(const MicroBatch& micro_batch, const std::vector<double>& tokens);
  Slot& take_slot(int64_t chunk);
  bool has_before(int64_t chunk) const { return !chunks_[static_cast<size_t>(chunk)].is_first(); }
  bool has_after(int64_t chunk) const { return !chunks_[static_cast<size_t>(chunk)].is_last(); }
  int stage_before() const;
  int stage_after() const;

  std::vector<ModelChunk> chunks_;
  Grid& grid_;
  kernels::Kernels& kernels_;
  PipelineOptions options_;
  kernels::Array logits_;
  ModelRanks ranks_;
  std::vector<int64_t> positions_;
  std::shared_ptr<void> rope_memory_;
  const float *cosine_ = nullptr, *sine_ = nullptr;
  int64_t hidden_;
  bool has_experts_;
  std::vector<Sizes> sizes_;  // by chunk
  Arena scratch_, transient_;
  std::vector<std::list<Slot>> slots_;  // by chunk
  Batch batch_;
  uint64_t dropout_key_ = 0;    // for the step
  int64_t runs_ = 0;            // number of runs, between which parameters may change
  double auxiliary_scale_ = 0;  // for the step's load-balancing losses
  PassWatcher* watcher_ = nullptr;
  int64_t last_micro_batch_ = -1;  // in the step
  StepLoss loss_;
  /// The sums of losses of each micro-batch, and their divisors.
  std::list<std::pair<double, double>> downloads_;
};

}  // namespace ferry
