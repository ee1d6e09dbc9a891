#include "trainer/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

namespace ferry {

using kernels::Array;
using kernels::Type;

namespace {

// Counts numbers whose bits are all zero except the sign.
template <typename Word>
double zeros_in(const std::vector<std::byte>& bytes, Word mask) {
  int64_t zeros = 0;
  for (size_t at = 0; at < bytes.size(); at += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    zeros += (word & mask) == 0 ? 1 : 0;
  }
  return static_cast<double>(zeros);
}

}  // namespace

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
  // Half-life of an average in steps, minus one.
  const auto half_life = [](double beta) { return std::log(0.5) / std::log(beta + 1e-8) - 1; };
  const double part = static_cast<double>(number) / static_cast<double>(options.beta3_warmup);
  const double steps = (1 - part) * half_life(options.beta1) + part * half_life(options.beta3);
  return std::pow(0.5, 1 / (steps + 1));
}

namespace {

/// Whether `after` has the same rates as `run` and is contiguous with it in every array.
bool goes_on(const StateRun& run, const StateRun& after) {
  const int64_t end = run.elements;
  if (run.is_input_or_output != after.is_input_or_output || run.decays != after.decays ||
      run.gradient.from(end).data != after.gradient.data ||
      run.value.from(end).data != after.value.data) {
    return false;
  }
  if (run.remainder != nullptr ? run.remainder + end != after.remainder
                               : run.master + end != after.master) {
    return false;
  }
  for (size_t kind = 0; kind < run.states.size(); ++kind) {
    if (run.states[kind].from(end).data != after.states[kind].data) return false;
  }
  return true;
}

/// Merges contiguous runs: experts have thousands.
std::vector<StateRun> runs_of_steps(std::span<const StateRun> runs) {
  std::vector<StateRun> all;
  for (const StateRun& run : runs) {
    if (!all.empty() && goes_on(all.back(), run)) {
      all.back().elements += run.elements;
    } else if (!all.empty() && goes_on(run, all.back())) {
      const int64_t following = all.back().elements;
      all.back() = run;
      all.back().elements += following;
    } else {
      all.push_back(run);
    }
  }
  return all;
}

}  // namespace

Optimizer::Optimizer(ModelState& state, Grid& grid, kernels::Kernels& kernels,
                     OptimizerOptions options)
    : state_(state),
      grid_(grid),
      kernels_(kernels),
      options_(std::move(options)),
      memory_(kernels.allocate(sizeof(double) + 2 * sizeof(float))),
      sum_(static_cast<double*>(memory_.get())),
      gradient_scale_(reinterpret_cast<float*>(sum_ + 1)),
      is_skipped_(gradient_scale_ + 1) {
  for (size_t bucket = 0; bucket < state.buckets(); ++bucket) {
    runs_.push_back(runs_of_steps(state.runs_of(bucket)));
  }
}

// Reduces *sum_ over all parameters and all ranks.
void Optimizer::sum_squares(Values values) {
  kernels_.run(kernels::Clear{.count = 2, .y = Array(reinterpret_cast<float*>(sum_))});
  // Contiguous runs are one for the kernels.
  kernels::SumOfSquares next{.count = 0, .x = {}, .sum = sum_};
  for (const StateRun& run : state_.runs()) {
    if (!run.counts) continue;
    const kernels::ConstArray x = values(run);
    if (next.count > 0 && next.x.from(next.count).data == x.data) {
      next.count += run.elements;
    } else if (next.count > 0 && x.from(run.elements).data == next.x.data) {
      next.x = x;
      next.count += run.elements;
    } else {
      if (next.count > 0) kernels_.run(next);
      next.x = x;
      next.count = run.elements;
    }
  }
  if (next.count > 0) kernels_.run(next);
  grid_.world().wait(grid_.world().all_reduce(sum_, 1));
}

// *sum_, after waiting for all queued operations.
double Optimizer::read_sum() {
  double sum = 0;
  kernels_.download(sum_, &sum, sizeof sum);
  kernels_.wait();
  return sum;
}

void Optimizer::step(const StepRates& rates) {
  sum_squares([](const StateRun& run) { return kernels::ConstArray(run.gradient); });
  kernels_.run(kernels::ClipScale{.sum_of_squares = sum_,
                                  .max_norm = options_.clip,
                                  .loss_scale = rates.loss_scale,
                                  .scale = gradient_scale_,
                                  .is_skipped = is_skipped_});
  loss_scale_ = rates.loss_scale;
  kernels_.download(sum_, &downloaded_sum_, sizeof downloaded_sum_);
  state_.update_parameters([&](size_t bucket) { step_runs(runs_[bucket], rates); });
}

StepResult Optimizer::result() {
  kernels_.wait();
  StepResult result;
  result.norm = std::sqrt(downloaded_sum_) / loss_scale_;
  result.is_skipped = !std::isfinite(result.norm);
  return result;
}

void Optimizer::step_runs(std::span<const StateRun> runs, const StepRates& rates) {
  kernels::StepInput input{
      .runs = {}, .gradient_scale = gradient_scale_, .is_skipped = is_skipped_};
  for (const StateRun& run : runs) {
    kernels::ParameterRun& next = input.runs.emplace_back();
    next.count = run.elements;
    next.gradient = run.gradient;
    next.parameter = run.master;
    if (run.value.type != Type::f32) next.copy = run.value;
    next.remainder = run.remainder;
    std::ranges::copy(run.states, next.states.begin());
    next.learning_rate = run.is_input_or_output
                             ? rates.input_and_output_rate.value_or(rates.learning_rate)
                             : rates.learning_rate;
    next.weight_decay = run.decays ? rates.weight_decay : 0;
  }
  switch (options_.kind) {
    case OptimizerOptions::Kind::adam:
      kernels_.run(kernels::AdamStep{.step = std::move(input),
                                     .beta1 = options_.beta1,
                                     .beta2 = options_.beta2,
                                     .epsilon = options_.epsilon,
                                     .number = rates.number,
                                     .decoupled = options_.decoupled_weight_decay});
      break;
    case OptimizerOptions::Kind::sgd:
      kernels_.run(kernels::SgdStep{
          .step = std::move(input), .momentum = options_.momentum, .number = rates.number});
      break;
    case OptimizerOptions::Kind::ademamix:
      kernels_.run(kernels::AdemamixStep{.step = std::move(input),
                                         .beta1 = options_.beta1,
                                         .beta2 = options_.beta2,
                                         .beta3 = warm_beta3(options_, rates.number),
                                         .alpha = warm_alpha(options_, rates.number),
                                         .epsilon = options_.epsilon,
                                         .number = rates.number});
      break;
  }
}

// With remainders, of the parameters in the model's type.
double Optimizer::parameter_norm() {
  sum_squares([](const StateRun& run) {
    return run.remainder != nullptr ? kernels::ConstArray(run.value)
                                    : kernels::ConstArray(run.master);
  });
  return std::sqrt(read_sum());
}

int64_t Optimizer::count_zeros() {
  double zeros = 0;
  std::vector<std::byte> bytes;
  for (const StateRun& run : state_.runs()) {
    if (!run.counts) continue;
    bytes.resize(static_cast<size_t>(run.elements * kernels::size_bytes(run.gradient.type)));
    kernels_.download(run.gradient.data, bytes.data(), bytes.size());
    kernels_.wait();
    if (run.gradient.type == Type::f32) {
      zeros += zeros_in<uint32_t>(bytes, 0x7fffffff);
    } else {
      zeros += zeros_in<uint16_t>(bytes, 0x7fff);
    }
  }
  grid_.world().add_numbers({&zeros, 1});
  return static_cast<int64_t>(zeros);
}

}  // namespace ferry
