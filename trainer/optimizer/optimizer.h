// From gradients to changed parameters.
//
// Source: megatron/core/optimizer/{optimizer,clip_grads}.py; Pagliardini et al. 2024 (AdEMAMix).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/optimizer/model_state.h"

namespace ferry {

struct OptimizerOptions {
  enum class Kind : uint8_t { adam, sgd, ademamix };
  Kind kind = Kind::adam;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool decoupled_weight_decay = true;
  double momentum = 0.9;                       // SGD
  double beta3 = 0.9999, alpha = 2;            // AdEMAMix, once they are warm
  int64_t beta3_warmup = 0, alpha_warmup = 0;  // steps; 0 and less: they always are
  double clip = 1;                             // largest norm of the gradient; 0: any
  /// Learning rates of the embeddings of words and of the output layer, where they have their own.
  struct Rates {
    double max = 0, min = 0;
  };
  std::optional<Rates> input_and_output;

  /// Kinds of state, as checkpoints name them.
  std::vector<std::string> state_kinds() const;
};

/// AdEMAMix's weight of the slow average in step `number`: it grows evenly from 0.
double warm_alpha(const OptimizerOptions& options, int64_t number);
/// How much of the slow average stays: its half-life grows evenly, from beta1's.
double warm_beta3(const OptimizerOptions& options, int64_t number);

/// What changes from step to step.
struct StepRates {
  int64_t number = 1;  // of the step, from 1: what corrections of biases count
  double learning_rate = 0;
  std::optional<double> input_and_output_rate;  // of OptimizerOptions::input_and_output
  double weight_decay = 0;                      // of parameters that decay
  double loss_scale = 1;                        // gradients are that many times too large
};

struct StepResult {
  double norm = 0;          // of the gradient of all parameters, before it was clipped
  bool is_skipped = false;  // the gradient is not finite: nothing changed
};

/// One rank's part; all ranks of the grid call it alike. How much a gradient is clipped, and
/// whether it counts at all, is found out where it lies: the host is told behind the step.
class Optimizer {
 public:
  Optimizer(ModelState& state, Grid& grid, kernels::Kernels& kernels, OptimizerOptions options);

  /// With complete gradients. Waits for nothing.
  void step(const StepRates& rates);
  /// Of the last step, once it is over.
  StepResult result();

  /// Numbers of the gradient that are zero, over all ranks.
  int64_t count_zeros();
  /// The norm of all parameters, over all ranks.
  double parameter_norm();

 private:
  using Values = kernels::ConstArray (*)(const StateRun&);

  void sum_squares(Values values);
  double read_sum();
  void step_runs(std::span<const StateRun> runs, const StepRates& rates);

  ModelState& state_;
  std::vector<std::vector<StateRun>> runs_;  // by bucket: those of the state, as steps take them
  Grid& grid_;
  kernels::Kernels& kernels_;
  OptimizerOptions options_;
  std::shared_ptr<void> memory_;  // of the device, and what follows lies there
  double* sum_;
  float *gradient_scale_, *is_skipped_;  // of all runs
  double told_sum_ = 0;                  // of the last step, on its way to the host
  double loss_scale_ = 1;
};

}  // namespace ferry
