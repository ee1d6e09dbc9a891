#include "trainer/optimizer/optimizer.h"

#include <cmath>
#include <utility>

namespace ferry {

using kernels::Array;
using kernels::Type;

std::vector<std::string> OptimizerOptions::state_kinds() const {
  switch (kind) {
    case Kind::adam:
      return {"exp_avg", "exp_avg_sq"};
    case Kind::sgd:
      return {"momentum_buffer"};
    case Kind::ademamix:
      return {"exp_avg_fast", "exp_avg_slow", "exp_avg_sq"};
  }
  return {};
}

double warm_alpha(const OptimizerOptions& options, int64_t number) {
  if (number >= options.alpha_warmup) return options.alpha;
  return options.alpha * static_cast<double>(number) / static_cast<double>(options.alpha_warmup);
}

double warm_beta3(const OptimizerOptions& options, int64_t number) {
  if (number >= options.beta3_warmup) return options.beta3;
  // Steps in which half of an average goes, less one.
  const auto half_life = [](double beta) { return std::log(0.5) / std::log(beta + 1e-8) - 1; };
  const double part = static_cast<double>(number) / static_cast<double>(options.beta3_warmup);
  const double steps = (1 - part) * half_life(options.beta1) + part * half_life(options.beta3);
  return std::pow(0.5, 1 / (steps + 1));
}

Optimizer::Optimizer(ModelState& state, Grid& grid, kernels::Kernels& kernels,
                     OptimizerOptions options)
    : state_(state),
      grid_(grid),
      kernels_(kernels),
      options_(std::move(options)),
      memory_(kernels.allocate(sizeof(double) + sizeof(float))),
      sum_(static_cast<double*>(memory_.get())),
      gradient_scale_(reinterpret_cast<float*>(sum_ + 1)) {}

double Optimizer::sum_over_ranks(double sum) {
  grid_.world().wait(grid_.world().all_reduce(&sum, 1));
  return sum;
}

StepResult Optimizer::step(const StepRates& rates) {
  const double zero = 0;
  kernels_.upload(&zero, sum_, sizeof zero);
  for (const StateRun& run : state_.runs()) {
    if (!run.counts) continue;
    kernels_.run(kernels::SumOfSquares{.count = run.elements, .x = run.gradient, .sum = sum_});
  }
  double own = 0;
  kernels_.download(sum_, &own, sizeof own);
  kernels_.wait();
  StepResult result;
  result.norm = std::sqrt(sum_over_ranks(own)) / rates.loss_scale;
  result.is_skipped = !std::isfinite(result.norm);
  if (result.is_skipped) return result;
  const double clip = options_.clip > 0 ? options_.clip / (result.norm + 1e-6) : 1;
  const auto scale = static_cast<float>(std::min(clip, 1.0) / rates.loss_scale);
  kernels_.upload(&scale, gradient_scale_, sizeof scale);
  for (const StateRun& run : state_.runs()) step_run(run, rates);
  state_.gather_parameters();
  return result;
}

void Optimizer::step_run(const StateRun& run, const StepRates& rates) {
  const bool has_copy = run.value.type != Type::f32;
  const kernels::StepInput input{
      .count = run.elements,
      .gradient = run.gradient,
      .gradient_scale = gradient_scale_,
      .parameter = run.master,
      .copy = has_copy ? run.value : Array(),
      .learning_rate = run.is_input_or_output
                           ? rates.input_and_output_rate.value_or(rates.learning_rate)
                           : rates.learning_rate,
      .weight_decay = run.axes > 1 ? rates.weight_decay : 0};
  switch (options_.kind) {
    case OptimizerOptions::Kind::adam:
      kernels_.run(kernels::AdamStep{.step = input,
                                     .first_moment = run.states[0],
                                     .second_moment = run.states[1],
                                     .beta1 = options_.beta1,
                                     .beta2 = options_.beta2,
                                     .epsilon = options_.epsilon,
                                     .number = rates.number,
                                     .decoupled = options_.decoupled_weight_decay});
      break;
    case OptimizerOptions::Kind::sgd:
      kernels_.run(kernels::SgdStep{.step = input,
                                    .momentum_buffer = run.states[0],
                                    .momentum = options_.momentum,
                                    .number = rates.number});
      break;
    case OptimizerOptions::Kind::ademamix:
      kernels_.run(kernels::AdemamixStep{.step = input,
                                         .fast_moment = run.states[0],
                                         .slow_moment = run.states[1],
                                         .second_moment = run.states[2],
                                         .beta1 = options_.beta1,
                                         .beta2 = options_.beta2,
                                         .beta3 = warm_beta3(options_, rates.number),
                                         .alpha = warm_alpha(options_, rates.number),
                                         .epsilon = options_.epsilon,
                                         .number = rates.number});
      break;
  }
}

double Optimizer::parameter_norm() {
  *sum_ = 0;
  for (const StateRun& run : state_.runs()) {
    if (!run.counts) continue;
    kernels_.run(kernels::SumOfSquares{.count = run.elements, .x = Array(run.master), .sum = sum_});
  }
  kernels_.wait();
  return std::sqrt(sum_over_ranks(*sum_));
}

int64_t Optimizer::count_zeros() {
  double zeros = 0;
  kernels_.wait();
  for (const StateRun& run : state_.runs()) {
    if (!run.counts) continue;
    if (run.gradient.type == Type::f32) {
      const auto* gradient = static_cast<const float*>(run.gradient.data);
      for (int64_t i = 0; i < run.elements; ++i) zeros += gradient[i] == 0 ? 1 : 0;
    } else {
      const auto* gradient = static_cast<const uint16_t*>(run.gradient.data);
      for (int64_t i = 0; i < run.elements; ++i) zeros += (gradient[i] & 0x7fff) == 0 ? 1 : 0;
    }
  }
  return static_cast<int64_t>(sum_over_ranks(zeros));
}

}  // namespace ferry
