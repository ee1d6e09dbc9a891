// The lines that a run prints, exactly as Megatron-LM prints them, so that tools which read its
// logs read these.
//
// Source: Megatron-LM megatron/training/training.py (training_log, evaluate_and_print_results),
// initialize.py, vocab_utils.py, models/dist_utils.py, core/num_microbatches_calculator.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/arguments/train_arguments.h"

namespace ferry {

using NamedLosses = std::vector<std::pair<std::string, double>>;  // "lm loss", "z_loss", ...

/// Losses since the last line. Sums are kept in single precision, as Megatron-LM's are.
struct LossWindow {
  std::vector<std::pair<std::string, float>> sums;  // names are kept once seen
  int64_t advanced = 0, skipped = 0, nan = 0;

  int64_t iterations() const { return advanced + skipped; }
};
void add(LossWindow& window, const NamedLosses& losses, bool skipped);
NamedLosses averages(const LossWindow& window);
/// Called after each line except a process's first, which is printed after its first iteration and
/// does not reset the sums.
void start_again(LossWindow& window);

struct TrainingLine {
  std::string date_and_time;  // "2026-11-22 06:27:19.078448"; empty: left out
  int64_t iteration = 0, train_iterations = 0;
  int64_t consumed_samples = 0, skipped_samples = 0;  // skipped ones only if not 0
  double milliseconds = 0;                            // of an iteration
  std::optional<double> teraflops;
  std::optional<double>
      learning_rate;  // rounded to single precision, as Megatron-LM's ranks exchange it
  int64_t batch_size = 0;
  NamedLosses losses;  // averages; negative and NaN ones are omitted
  double loss_scale = 1;
  std::optional<double> gradient_norm;  // none for a skipped iteration
  std::optional<double> zeros;          // zeros in gradients; printed as a Python float
  std::optional<double> parameter_norm;
  int64_t skipped = 0, nan = 0;
};
/// Without a newline; printed by the last rank.
std::string training_line(const TrainingLine& line);

/// `at`: for example "iteration 1000 on validation set". Framed lines, each with its newline.
std::string validation_lines(const std::string& at, const NamedLosses& losses);
double perplexity(double loss);

// Lines at startup, each with its newline.
std::string world_line(const TrainArguments& arguments);
std::string dtype_line(const TrainArguments& arguments);
std::string micro_batches_line(int64_t micro_batches);
std::string vocabulary_line(int64_t tokens, int64_t padded);
std::string seed_line(int64_t seed);
std::string start_time_line(double seconds);
std::string parameters_line(int64_t tensor_rank, int64_t stage, int64_t parameters);
std::string data_sizes_lines(int64_t train, int64_t validation, int64_t test);
std::string train_iterations_line(int64_t iterations);

/// "2026-11-22 06:27:19.078448", local time; `microseconds` since the epoch.
std::string date_and_time(int64_t microseconds);
int64_t now_microseconds();

/// Number of samples of each split that a run needs.
struct DataSizes {
  int64_t train = 0, validation = 0, test = 0;
};
DataSizes data_sizes(const TrainArguments& arguments);

/// The phase of --phase-transition-iterations of a process that starts after `iteration`; the
/// process ends with the phase. Without the argument the whole run is one phase.
struct DataPhase {
  int64_t first = 0;    // iterations before it
  int64_t samples = 0;  // in the phase, which has its own order
};
DataPhase data_phase(const TrainArguments& arguments, int64_t iteration);

}  // namespace ferry
