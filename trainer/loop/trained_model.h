// The loop's view of a model: one rank's part of it, including its samples.
//
// The loop (training_loop.h) does everything else: it decides when to step, evaluate, save and end,
// and has the schedule, the optimizer, the loss scale and the log. Parameters, gradients and
// optimizer state are in a ModelState, which the loop updates, saves and loads.
//
//   build()                                            once
//   initialize(), or the loop loads what take_source() gives
//   begin_step(), train(), gradient_divisor(), losses(), end_step()        every iteration
//   evaluate()                                         between iterations
//
// All ranks make the same calls, each from one thread: any function may communicate with the other
// ranks (grid()).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/data/data_options.h"
#include "trainer/log/log_lines.h"
#include "trainer/log/run_log.h"
#include "trainer/loop/rank_setup.h"
#include "trainer/optimizer/model_state.h"
#include "trainer/parallel/grid.h"
#include "trainer/schedule/batch_size.h"

namespace ferry {

/// A loss over all ranks: a sum and the number of terms.
struct LossSum {
  std::string name;  // as logged
  double sum = 0, count = 0;

  double mean() const { return sum / std::max(count, 1.0); }
};

/// Which samples an iteration takes: those after the first `consumed` ones, in micro-batches of
/// --micro-batch-size on each data rank (trainer/data/sampler.h defines which rank takes what).
/// These numbers alone determine what a resumed run reads.
struct StepSamples {
  int64_t consumed = 0;
  IterationBatch batch;
};

class TrainedModel {
 public:
  virtual ~TrainedModel() = default;

  /// Opens the samples and allocates the model. Only take_source() is called before it, to report
  /// wrong checkpoints and data before memory is allocated.
  virtual void build(RunLog& log) = 0;
  /// What the run starts from, with the tensor names of layout(); null: the model as initialize()
  /// leaves it.
  virtual std::unique_ptr<const Source> take_source() { return nullptr; }

  /// The model's state in checkpoints other than tensors: members of the common state, by name, the
  /// same on all ranks. Called by all ranks between iterations.
  using Objects = std::vector<std::pair<std::string, LoadedValue>>;
  virtual Objects objects() { return {}; }
  /// Restores them from the common state of a checkpoint; `path` is for messages.
  virtual void set_objects(const Objects& objects, const std::string& path) {
    static_cast<void>(objects);
    static_cast<void>(path);
  }

  // Available from build() on.
  virtual RankDevice& device() = 0;
  virtual Grid& grid() = 0;
  virtual ModelState& state() = 0;
  virtual const StateLayout& layout() const = 0;
  virtual bool has_samples(DataSplit split) const = 0;

  /// Initializes all parameters as a function of the run's seed, the same on all ranks that share
  /// them.
  virtual void initialize() = 0;
  /// A description that rank 0 prints before the first iteration.
  virtual std::string description() const { return {}; }

  /// `number` counts steps from 0.
  virtual void begin_step(int64_t number) { static_cast<void>(number); }
  /// Runs forward and backward passes over the step's micro-batches. Computes this rank's part of
  /// the sum over data ranks of the gradient of the mean loss, times `loss_scale` and
  /// gradient_divisor(). Does not wait for kernels.
  virtual void train(const StepSamples& samples, double loss_scale) = 0;
  /// After train(): an additional divisor of the gradients besides the loss scale.
  virtual double gradient_divisor() { return 1; }
  /// Losses of the last train(): first the training loss, then others to log. Waits for them.
  virtual std::vector<LossSum> losses() = 0;
  /// Called after the optimizer step: further means to log.
  virtual NamedLosses end_step(const StepSamples& samples) {
    static_cast<void>(samples);
    return {};
  }

  /// Losses of a split's samples, without a backward pass.
  virtual std::vector<LossSum> evaluate(DataSplit split, const StepSamples& samples) = 0;

  /// Floating-point operations of a step over this many samples.
  virtual double operations(int64_t samples) const = 0;
};

}  // namespace ferry
