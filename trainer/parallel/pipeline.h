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
  int64_t sequences = 1;  // of a micro-batch
  int64_t length = 0;     // tokens of a sequence
  bool sequence_parallel = false;
  bool resets_attention = false;
  bool per_token_loss = false;  // each token counts the same, however many its micro-batch has
  int64_t predictions = 0;      // of tokens further on
  double prediction_scale = 0;  // what the loss of each of them counts
  double hidden_dropout = 0, attention_dropout = 0;
  int64_t seed = 0;  // of dropout
  Recompute recompute;
};

struct StepLoss {
  double sum = 0;                   // of the losses of all tokens that count, over all ranks
  double tokens = 0;                // that count
  std::vector<double> predictions;  // by prediction: sums of the micro-batches' means
};

class Pipeline {
 public:
  /// Gives the samples of a micro-batch of this data rank.
  using Source = std::function<void(int64_t micro_batch, Batch& batch)>;
  /// By the names that logs have for them.
  using Losses = std::vector<std::pair<std::string, double>>;

  /// `chunks` are the virtual stages of this rank.
  Pipeline(std::vector<ModelChunk> chunks, const Architecture& architecture, Grid& grid,
           kernels::Kernels& kernels, const PipelineOptions& options);
  ~Pipeline();

  /// Told how far the forward passes are, and the backward passes of a step's last micro-batches;
  /// null: nobody is.
  void set_watcher(PassWatcher* watcher) { watcher_ = watcher; }

  /// Before train(): forgets what experts counted. Dropout depends on the number of the step.
  void begin_step(int64_t number);

  /// Adds the gradient of the mean loss, times `loss_scale` and gradient_divisor(), to the
  /// parameters' gradients: this rank's part of the sum over data-parallel ranks. Waits for nothing
  /// that kernels compute but what it says itself (counts of experts' tokens).
  void train(int64_t micro_batches, double loss_scale, const Source& source);
  /// With per_token_loss the tokens that count, over all ranks: their number is known when all were
  /// read. Else 1. All ranks call it alike behind train(). Waits for no kernels.
  double gradient_divisor();
  /// Those of train(), once it is over. All ranks call it.
  StepLoss losses();
  /// Behind losses(): losses beside that of the model, by the names that logs have for them: means
  /// over the layers of what routers add, and the losses of prediction layers. Moves the experts'
  /// biases. All ranks call it.
  Losses end_step(int64_t micro_batches);

  /// Where the last micro-batch's logits go from now on: [rows, columns of the rank].
  void keep_logits(kernels::Array logits) { logits_ = logits; }

  /// The losses alone.
  StepLoss evaluate(int64_t micro_batches, const Source& source);

  /// Bytes for what passes keep and use, and operations of a step on this rank.
  struct Plan {
    int64_t activation_bytes = 0;
    /// On a GPU, what gradients of attention are computed in: by our own kernels, and where a
    /// library's compute those that they have.
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
  uint64_t dropout_key_ = 0;    // of the step
  int64_t runs_ = 0;            // of the passes, between which parameters may change
  double auxiliary_scale_ = 0;  // of the step's load-balancing losses
  PassWatcher* watcher_ = nullptr;
  int64_t last_micro_batch_ = -1;  // of the step
  StepLoss loss_;
  /// Of each micro-batch: the sums of its losses, and what they are divided by.
  std::list<std::pair<double, double>> downloads_;
};

}  // namespace ferry
