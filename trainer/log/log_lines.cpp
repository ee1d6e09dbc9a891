#include "trainer/log/log_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <iterator>
#include <set>

#include "ckpt/base/checked.h"
#include "trainer/arguments/argument_value.h"
#include "trainer/schedule/batch_size.h"
#include "trainer/schedule/exit.h"

namespace ferry {

void add(LossWindow& window, const NamedLosses& losses, bool skipped) {
  ++(skipped ? window.skipped : window.advanced);
  bool finite = true;
  for (const auto& [name, loss] : losses) {
    finite = finite && std::isfinite(loss);
    if (skipped) continue;
    auto found = std::find_if(window.sums.begin(), window.sums.end(),
                              [&](const auto& sum) { return sum.first == name; });
    if (found == window.sums.end()) found = window.sums.insert(found, {name, 0.0f});
    found->second += static_cast<float>(loss);
  }
  if (skipped && !finite) ++window.nan;
}

NamedLosses averages(const LossWindow& window) {
  NamedLosses result;
  const auto count = static_cast<double>(std::max<int64_t>(window.advanced, 1));
  for (const auto& [name, sum] : window.sums) {
    result.emplace_back(name, static_cast<double>(sum) / count);
  }
  return result;
}

void start_again(LossWindow& window) {
  for (auto& sum : window.sums) sum.second = 0;
  window.advanced = window.skipped = window.nan = 0;
}

std::string training_line(const TrainingLine& l) {
  std::string s;
  if (!l.date_and_time.empty()) s += fmt::format(" [{}]", l.date_and_time);
  s += fmt::format(" iteration {:8d}/{:8d} |", l.iteration, l.train_iterations);
  s += fmt::format(" consumed samples: {:12d} |", l.consumed_samples);
  if (l.skipped_samples > 0) s += fmt::format(" skipped samples: {:12d} |", l.skipped_samples);
  s += fmt::format(" elapsed time per iteration (ms): {:.1f} |", l.milliseconds);
  if (l.teraflops) s += fmt::format(" throughput per GPU (TFLOP/s/GPU): {:.1f} |", *l.teraflops);
  if (l.learning_rate) s += fmt::format(" learning rate: {:.6E} |", *l.learning_rate);
  s += fmt::format(" global batch size: {:5d} |", l.batch_size);
  for (const auto& [name, loss] : l.losses) {
    if (loss >= 0) s += fmt::format(" {}: {:.6E} |", name, loss);
  }
  s += fmt::format(" loss scale: {:.1f} |", l.loss_scale);
  if (l.gradient_norm) s += fmt::format(" grad norm: {:.3f} |", *l.gradient_norm);
  if (l.zeros) s += fmt::format(" num zeros: {} |", python_real(*l.zeros));
  if (l.parameter_norm) s += fmt::format(" params norm: {:.3f} |", *l.parameter_norm);
  s += fmt::format(" number of skipped iterations: {:3d} |", l.skipped);
  return s += fmt::format(" number of nan iterations: {:3d} |", l.nan);
}

double perplexity(double loss) { return std::exp(std::min(20.0, loss)); }

std::string validation_lines(const std::string& at, const NamedLosses& losses) {
  std::string line = fmt::format(" validation loss at {} | ", at);
  for (const auto& [name, loss] : losses) {
    line += fmt::format("{} value: {:.6E} | ", name, loss);
    line += fmt::format("{} PPL: {:.6E} | ", name, perplexity(loss));
  }
  const std::string frame(line.size() + 1, '-');
  return fmt::format("{}\n{}\n{}\n", frame, line, frame);
}

std::string world_line(const TrainArguments& a) {
  return fmt::format(
      "using world size: {}, data-parallel size: {}, context-parallel size: {}, hierarchical "
      "context-parallel sizes: None, tensor-model-parallel size: {}, pipeline-model-parallel size: "
      "{}\n",
      a.world_size, a.data_parallel_size, a.context_parallel_size, a.tensor_model_parallel_size,
      a.pipeline_model_parallel_size);
}

std::string dtype_line(const TrainArguments& a) {
  return fmt::format("using {} for parameters ...\n", a.params_dtype);
}

std::string micro_batches_line(int64_t micro_batches) {
  return fmt::format("setting number of microbatches to constant {}\n", micro_batches);
}

std::string vocabulary_line(int64_t tokens, int64_t padded) {
  return fmt::format(" > padded vocab (size: {}) with {} dummy tokens (new size: {})\n", tokens,
                     padded - tokens, padded);
}

std::string seed_line(int64_t seed) {
  return fmt::format("> setting random seeds to {} ...\n", seed);
}

std::string start_time_line(double seconds) {
  return fmt::format("time to initialize megatron (seconds): {:.3f}\n", seconds);
}

std::string parameters_line(int64_t tensor_rank, int64_t stage, int64_t parameters) {
  return fmt::format(
      " > number of parameters on (tensor, gtp_remat, pipeline) model parallel rank ({}, 0, {}): "
      "{}\n",
      tensor_rank, stage, parameters);
}

std::string data_sizes_lines(int64_t train, int64_t validation, int64_t test) {
  return fmt::format(
      " > datasets target sizes (minimum size):\n    train:      {}\n    validation: {}\n    test: "
      " "
      "     {}\n",
      train, validation, test);
}

std::string train_iterations_line(int64_t iterations) {
  return fmt::format("setting training iterations to {}\n", iterations);
}

std::string date_and_time(int64_t microseconds) {
  constexpr int64_t kMillion = 1'000'000;
  const auto seconds = static_cast<std::time_t>(microseconds / kMillion);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return fmt::format("{}.{:06d}", text, microseconds % kMillion);
}

int64_t now_microseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

DataSizes data_sizes(const TrainArguments& a) {
  const auto times = [](int64_t x, int64_t y) { return checked_multiply(x, y, "data samples"); };
  // With --train-samples, Megatron-LM sets --train-iters before it counts.
  const int64_t iterations = a.train_iters     ? *a.train_iters
                             : a.train_samples ? iterations_for(batch_sizes(a), *a.train_samples)
                                               : 0;
  DataSizes sizes;
  sizes.train = a.train_samples.value_or(times(iterations, a.global_batch_size.value_or(1)));
  int64_t evaluations = 1;
  if (!a.skip_train) {
    const int64_t interval = a.eval_interval.value_or(0);
    evaluations = interval > 0 ? iterations / interval + 1 : 1;
    if (a.start_eval_at_iter && interval > 0) {
      evaluations = std::max<int64_t>(0, evaluations - *a.start_eval_at_iter / interval);
    }
  }
  const int64_t batch = a.eval_global_batch_size.value_or(1);
  sizes.test = times(a.eval_iters, batch);
  sizes.validation = times(evaluations, sizes.test);
  return sizes;
}

DataPhase data_phase(const TrainArguments& a, int64_t iteration) {
  const int64_t all = data_sizes(a).train;
  const std::set<int64_t> transitions = phase_transitions(a.phase_transition_iterations);
  const auto samples_before = [&](int64_t iterations) {
    return checked_multiply(iterations, a.global_batch_size.value_or(1), "data samples");
  };
  const auto next = transitions.upper_bound(iteration);
  DataPhase phase;
  if (next != transitions.begin()) phase.first = *std::prev(next);
  const int64_t end = next == transitions.end() ? all : std::min(all, samples_before(*next));
  phase.samples = end - samples_before(phase.first);
  // For a finished run, which may still be evaluated.
  if (phase.samples <= 0) phase = {0, all};
  return phase;
}

}  // namespace ferry
