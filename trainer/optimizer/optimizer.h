// Updates parameters from gradients.
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
  double beta3 = 0.9999, alpha = 2;            // AdEMAMix, after warmup
  int64_t beta3_warmup = 0, alpha_warmup = 0;  // steps; 0 or less: no warmup
  double clip = 1;                             // maximum gradient norm; 0: unlimited
  /// Learning rates of the word embeddings and the output layer, if they have their own.
  struct Rates {
    double max = 0, min = 0;
  };
  std::optional<Rates> input_and_output;

  /// Kinds of state, named as in checkpoints.
  std::vector<std::string> state_kinds() const;
};

/// AdEMAMix's weight of the slow average in step `number`: grows linearly from 0.
double warm_alpha(const OptimizerOptions& options, int64_t number);
/// The decay of the slow average: its half-life grows linearly from beta1's.
double warm_beta3(const OptimizerOptions& options, int64_t number);

/// Values that change from step to step.
struct StepRates {
  int64_t number = 1;  // of the step, from 1, for bias correction
  double learning_rate = 0;
  std::optional<double> input_and_output_rate;  // of OptimizerOptions::input_and_output
  double weight_decay = 0;                      // for parameters with weight decay
  double loss_scale = 1;                        // factor in the gradients
};

struct StepResult {
  double norm = 0;          // of the gradient of all parameters, before clipping
  bool is_skipped = false;  // non-finite gradient: nothing changed
};

/// One rank's part; all ranks of the grid make the same calls. Clipping and skipping are decided on
/// the device; the host learns of them after the step.
class Optimizer {
 public:
  Optimizer(ModelState& state, Grid& grid, kernels::Kernels& kernels, OptimizerOptions options);

  /// Requires complete gradients. Does not wait.
  void step(const StepRates& rates);
  /// The result of the last step, after waiting for it.
  StepResult result();

  /// Number of zeros in the gradient, over all ranks.
  int64_t count_zeros();
  /// The norm of all parameters, over all ranks.
  double parameter_norm();

 private:
  using Values = kernels::ConstArray (*)(const StateRun&);

  void sum_squares(Values values);
  double read_sum();
  void step_runs(std::span<const StateRun> runs, const StepRates& rates);

  ModelState& state_;
  std::vector<std::vector<StateRun>> runs_;  // by bucket: runs of the state, merged
  Grid& grid_;
  kernels::Kernels& kernels_;
  OptimizerOptions options_;
  std::shared_ptr<void> memory_;  // device memory, for the following
  double* sum_;
  float *gradient_scale_, *is_skipped_;  // of all runs
  double downloaded_sum_ = 0;            // of the last step, being downloaded
  double loss_scale_ = 1;
};

}  // namespace ferry
