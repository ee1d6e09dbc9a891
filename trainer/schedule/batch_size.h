// How many samples an iteration takes, over a run.
//
// Source: Megatron-LM megatron/core/num_microbatches_calculator.py: thresholds (since April 2026),
// start, increment and samples (until then).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/arguments/train_arguments.h"

namespace ferry {

/// A part of a run: from `from_samples` consumed on, iterations take `batch_size`.
struct BatchStep {
  int64_t from_samples = 0;
  int64_t batch_size = 0;

  bool operator==(const BatchStep&) const = default;
};

struct BatchSizes {
  std::vector<BatchStep> steps;  // at least one; the first from 0 on, growing
  int64_t micro_batch_size = 0;
  int64_t data_parallel_size = 1;
  bool round_down = false;  // to a multiple of the last two
  bool keep_rest = false;   // a run by samples has a last iteration beyond them
};

/// invalid for a schedule that is none, or a ramp that does not meet the global batch size.
BatchSizes batch_sizes(const TrainArguments& arguments);

/// "0:768 250B:1536": thresholds in tokens when `sequence_length` is given (0: samples), suffixes
/// K, M, B, T, blanks or commas between.
std::vector<BatchStep> parse_batch_schedule(std::string_view text, int64_t sequence_length);

/// Start, increment, samples of the ramp, up to `last`.
std::vector<BatchStep> ramp_up(int64_t start, int64_t increment, int64_t samples, int64_t last);

struct IterationBatch {
  int64_t global = 0;   // as the schedule says
  int64_t running = 0;  // what is taken: less with round_down
  int64_t micro_batches = 0;
};

/// invalid when it is no multiple of micro-batch size x data parallel size.
IterationBatch batch_at(const BatchSizes& sizes, int64_t consumed_samples);

/// Looks at the batches of all steps that begin within so many iterations, as batch_at() does, and
/// that their micro-batches are a multiple of `multiple`, as virtual pipeline stages need.
void check_batches(const BatchSizes& sizes, int64_t iterations, int64_t multiple);

/// Samples that so many iterations take.
int64_t samples_for(const BatchSizes& sizes, int64_t iterations);

/// Iterations of a run by samples: Megatron-LM's --train-iters for its --train-samples. What is
/// left for no full batch is left out, but for schedules by thresholds. exhausted beyond 2^31.
int64_t iterations_for(const BatchSizes& sizes, int64_t samples);

}  // namespace ferry
