// A model, as the loop that trains it knows it: one rank's part of it, its samples included.
//
// The loop (training_loop.h) keeps everything else: when a step, an evaluation and a save are due, the
// schedule, the optimizer, the loss scale, what is told and when a run ends. Parameters, gradients
// and optimizer state lie in a ModelState, by which the loop steps, saves and loads them.
//
//   build()                                            once
//   initialise(), or the loop loads what take_source() gives
//   begin_step(), train(), gradient_divisor(), losses(), end_step()        every iteration
//   evaluate()                                         between iterations
//
// All ranks call all of it alike, each from one thread: implementations may talk to the other
// ranks in any of it (grid()).
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

/// A loss over all ranks: a sum, and how much was summed up.
struct LossSum {
  std::string name;  // as logs have it
  double sum = 0, count = 0;

  double mean() const { return sum / std::max(count, 1.0); }
};

/// Which samples an iteration takes: those that follow the first `consumed` ones, in micro-batches
/// of --micro-batch-size on each data rank (trainer/data/sampler.h says which rank takes what). A
/// function of numbers: nothing else decides what a run that goes on reads.
struct StepSamples {
  int64_t consumed = 0;
  IterationBatch batch;
};

class TrainedModel {
 public:
  virtual ~TrainedModel() = default;

  /// Opens the samples and allocates the model. Before it only take_source() is called, to be told
  /// of wrong checkpoints and data before memory is taken.
  virtual void build(RunLog& log) = 0;
  /// What the run begins with; null: the model as initialise() leaves it. Its tensors have the
  /// names of layout().
  virtual std::unique_ptr<const Source> take_source() { return nullptr; }

  /// What checkpoints have of the model beside tensors: members of the common state, by name, that
  /// are the same on all ranks. All call it alike, between iterations.
  using Objects = std::vector<std::pair<std::string, LoadedValue>>;
  virtual Objects objects() { return {}; }
  /// Of a checkpoint that the run goes on from, with all others; `path` is for messages.
  virtual void set_objects(const Objects& objects, const std::string& path) {
    static_cast<void>(objects);
    static_cast<void>(path);
  }

  // What the rank has, from build() on.
  virtual RankDevice& device() = 0;
  virtual Grid& grid() = 0;
  virtual ModelState& state() = 0;
  virtual const StateLayout& layout() const = 0;
  virtual bool has_samples(DataSplit split) const = 0;

  /// Sets all parameters, the same on all ranks that share them: a function of the run's seed.
  virtual void initialise() = 0;
  /// Of the model and what it takes, for rank 0 to print before the first iteration.
  virtual std::string description() const { return {}; }

  /// `number`: of the step, from 0 on.
  virtual void begin_step(int64_t number) { static_cast<void>(number); }
  /// Forward and backward passes over the step's micro-batches: this rank's part of the sum over
  /// data ranks of the gradient of the mean loss, times `loss_scale` and gradient_divisor(). Waits
  /// for nothing that kernels compute.
  virtual void train(const StepSamples& samples, double loss_scale) = 0;
  /// Behind train(): what the gradients are to be divided by beside the loss scale.
  virtual double gradient_divisor() { return 1; }
  /// Of train(), once it is over: the loss that is trained on, then others to be told of.
  virtual std::vector<LossSum> losses() = 0;
  /// Behind the optimizer's step: more means to be told of.
  virtual NamedLosses end_step(const StepSamples& samples) {
    static_cast<void>(samples);
    return {};
  }

  /// The losses alone, of so many micro-batches of a split's samples.
  virtual std::vector<LossSum> evaluate(DataSplit split, const StepSamples& samples) = 0;

  /// Floating-point ones of a step over so many samples.
  virtual double operations(int64_t samples) const = 0;
};

}  // namespace ferry
