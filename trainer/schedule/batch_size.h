// The batch size of each iteration of a run.
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

/// A part of a run: after `from_samples` consumed samples, iterations take `batch_size`.
struct BatchStep {
  int64_t from_samples = 0;
  int64_t batch_size = 0;

  bool operator==(const BatchStep&) const = default;
};

struct BatchSizes {
  std::vector<BatchStep> steps;  // at least one; ascending, the first from 0 on
  int64_t micro_batch_size = 0;
  int64_t data_parallel_size = 1;
  bool round_down = false;  // to a multiple of the last two
  bool keep_rest = false;   // a run with --train-samples ends with a whole iteration beyond them
};

/// invalid for a malformed schedule, or a ramp that does not end at the global batch size.
BatchSizes batch_sizes(const TrainArguments& arguments);

/// "0:768 250B:1536": thresholds in tokens if `sequence_length` is given (0: samples), with
/// suffixes K, M, B, T, separated by blanks or commas.
std::vector<BatchStep> parse_batch_schedule(std::string_view text, int64_t sequence_length);

/// Start, increment, samples of the ramp, up to `last`.
std::vector<BatchStep> ramp_up(int64_t start, int64_t increment, int64_t samples, int64_t last);

struct IterationBatch {
  int64_t global = 0;   // from the schedule
  int64_t running = 0;  // actual size: less with round_down
  int64_t micro_batches = 0;
};

/// invalid unless it is a multiple of micro-batch size x data parallel size.
IterationBatch batch_at(const BatchSizes& sizes, int64_t consumed_samples);

/// Checks the batches of this many iterations as batch_at() does, and that their micro-batches are
/// a multiple of `multiple`, as virtual pipeline stages need.
void check_batches(const BatchSizes& sizes, int64_t iterations, int64_t multiple);

/// Samples that this many iterations take.
int64_t samples_for(const BatchSizes& sizes, int64_t iterations);

/// Iterations of a run with --train-samples, as Megatron-LM computes --train-iters. Samples that do
/// not fill a batch are dropped, except with threshold schedules. exhausted beyond 2^31.
int64_t iterations_for(const BatchSizes& sizes, int64_t samples);

}  // namespace ferry
