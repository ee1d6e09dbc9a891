#include "trainer/schedule/batch_size.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {

namespace {

// "250B", "1.5K".
int64_t parse_count(std::string_view text, std::string_view schedule) {
  double multiplier = 1;
  constexpr std::pair<char, double> kSuffixes[] = {{'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}};
  for (const auto& [suffix, value] : kSuffixes) {
    if (!text.empty() && (text.back() == suffix || text.back() == suffix - 'A' + 'a')) {
      multiplier = value;
    }
  }
  if (multiplier > 1) text.remove_suffix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const double count = std::floor(number * multiplier);
  if (error != std::errc() || end != text.data() + text.size() || !(count >= 0) || count > 1e18) {
    fail(ErrorKind::invalid,
         "--step-batch-size-schedule '{}': expected thresholds and sizes, such as 0:768 250B:1536",
         schedule);
  }
  return static_cast<int64_t>(count);
}

void check_steps(const std::vector<BatchStep>& steps, std::string_view schedule) {
  const auto refuse = [&](std::string_view why) {
    fail(ErrorKind::invalid, "--step-batch-size-schedule '{}': {}", schedule, why);
  };
  if (steps.empty() || steps.front().from_samples != 0) refuse("the first threshold must be 0");
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].batch_size <= 0) refuse("a batch of no samples");
    if (i > 0 && steps[i].from_samples <= steps[i - 1].from_samples) {
      refuse("two thresholds are equal");
    }
  }
}

}  // namespace

std::vector<BatchStep> parse_batch_schedule(std::string_view text, int64_t sequence_length) {
  std::vector<BatchStep> steps;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" ,", at), text.size());
    const std::string_view entry = text.substr(at, end - at);
    at = end + 1;
    if (entry.empty()) continue;
    const size_t colon = entry.find(':');
    int64_t from = parse_count(entry.substr(0, colon), text);
    if (sequence_length > 0) from /= sequence_length;
    const bool whole = colon != std::string_view::npos;
    steps.push_back({from, parse_count(whole ? entry.substr(colon + 1) : "", text)});
  }
  std::stable_sort(steps.begin(), steps.end(), [](const BatchStep& a, const BatchStep& b) {
    return a.from_samples < b.from_samples;
  });
  check_steps(steps, text);
  return steps;
}

std::vector<BatchStep> ramp_up(int64_t start, int64_t increment, int64_t samples, int64_t last) {
  constexpr int64_t kMostSteps = 1 << 20;
  if (start <= 0 || increment <= 0 || samples <= 0 || last < start ||
      (last - start) % increment != 0 || (last - start) / increment > kMostSteps) {
    fail(ErrorKind::invalid,
         "--rampup-batch-size {} {} {}: batches cannot grow from {} in steps of {} to "
         "--global-batch-size {}",
         start, increment, samples, start, increment, last);
  }
  const int64_t count = (last - start) / increment;
  // Size k starts at the first sample past k parts of the ramp; the last size, one sample after the
  // ramp's end (up to it, floor() already gives it).
  std::vector<BatchStep> steps = {{0, start}};
  for (int64_t k = 1; k <= count; ++k) {
    const double part = static_cast<double>(samples) / static_cast<double>(count);
    auto from = static_cast<int64_t>(std::ceil(part * static_cast<double>(k)));
    while (from > 0 && std::floor(static_cast<double>(from - 1) / part) >= static_cast<double>(k)) {
      --from;
    }
    while (std::floor(static_cast<double>(from) / part) < static_cast<double>(k)) ++from;
    from = std::min(from, samples + 1);
    const BatchStep step{from, start + k * increment};
    if (step.from_samples == steps.back().from_samples) {
      steps.back() = step;
    } else {
      steps.push_back(step);
    }
  }
  return steps;
}

BatchSizes batch_sizes(const TrainArguments& a) {
  BatchSizes sizes;
  sizes.micro_batch_size = a.micro_batch_size.value_or(1);
  sizes.data_parallel_size = a.data_parallel_size;
  sizes.round_down = a.decrease_batch_size_if_needed;
  const int64_t global = a.global_batch_size.value_or(1);
  if (!a.step_batch_size_schedule.empty()) {
    if (sizes.round_down) {
      fail(ErrorKind::invalid,
           "--decrease-batch-size-if-needed cannot be used with --step-batch-size-schedule");
    }
    sizes.keep_rest = true;
    sizes.steps = parse_batch_schedule(a.step_batch_size_schedule, a.seq_length.value_or(0));
  } else if (a.rampup_batch_size.size() == 3) {
    const auto& ramp = a.rampup_batch_size;
    sizes.steps = ramp_up(ramp[0], ramp[1], ramp[2], global);
  } else {
    sizes.steps = {{0, global}};
  }
  return sizes;
}

IterationBatch batch_at(const BatchSizes& sizes, int64_t consumed_samples) {
  const auto next = std::upper_bound(
      sizes.steps.begin() + 1, sizes.steps.end(), consumed_samples,
      [](int64_t samples, const BatchStep& step) { return samples < step.from_samples; });
  IterationBatch batch;
  batch.global = std::prev(next)->batch_size;
  const int64_t least =
      checked_multiply(sizes.micro_batch_size, sizes.data_parallel_size, "samples of a pass");
  batch.running = sizes.round_down ? batch.global / least * least : batch.global;
  batch.micro_batches = batch.running / least;
  if (batch.running % least != 0 || batch.micro_batches == 0) {
    fail(ErrorKind::invalid,
         "a batch of {} samples (from sample {} on) is not a multiple of micro-batch size {} x {} "
         "data parallel ranks: change the batches (--global-batch-size, --rampup-batch-size, "
         "--step-batch-size-schedule), --micro-batch-size or the ranks",
         batch.global, std::prev(next)->from_samples, sizes.micro_batch_size,
         sizes.data_parallel_size);
  }
  return batch;
}

void check_batches(const BatchSizes& sizes, int64_t iterations, int64_t multiple) {
  int64_t consumed = 0;
  for (size_t i = 0; i < sizes.steps.size() && iterations > 0; ++i) {
    const int64_t from = sizes.steps[i].from_samples;
    const IterationBatch batch = batch_at(sizes, from);
    if (batch.micro_batches % multiple != 0) {
      fail(ErrorKind::invalid,
           "a batch of {} samples (from sample {} on) is {} micro-batches for each data parallel "
           "rank, not a multiple of the {} pipeline stages, which virtual stages need: change the "
           "batches or --micro-batch-size, or leave out the virtual stages",
           batch.global, from, batch.micro_batches, multiple);
    }
    if (i + 1 == sizes.steps.size()) return;
    const int64_t until = sizes.steps[i + 1].from_samples;
    if (until <= consumed) continue;
    const int64_t count = (until - consumed + batch.running - 1) / batch.running;
    iterations -= count;
    consumed += count * batch.running;
  }
}

int64_t samples_for(const BatchSizes& sizes, int64_t iterations) {
  int64_t consumed = 0;
  for (size_t i = 0; i < sizes.steps.size() && iterations > 0; ++i) {
    const bool is_last = i + 1 == sizes.steps.size();
    const int64_t until = is_last ? INT64_MAX : sizes.steps[i + 1].from_samples;
    if (until <= consumed) continue;
    const int64_t running = batch_at(sizes, sizes.steps[i].from_samples).running;
    const int64_t to_next = (until - consumed - 1) / running + 1;
    const int64_t count = std::min(iterations, to_next);
    iterations -= count;
    consumed += checked_multiply(count, running, "samples of a run");
  }
  return consumed;
}

int64_t iterations_for(const BatchSizes& sizes, int64_t samples) {
  int64_t iterations = 0, consumed = 0;
  for (size_t i = 0; i < sizes.steps.size(); ++i) {
    const bool last = i + 1 == sizes.steps.size();
    const int64_t size = sizes.steps[i].batch_size;
    const int64_t until = last ? samples : std::min(samples, sizes.steps[i + 1].from_samples);
    if (until <= consumed) continue;
    // An iteration that starts before a threshold is complete.
    const bool rest = !last || sizes.keep_rest;
    const int64_t count = (until - consumed) / size + (rest && (until - consumed) % size != 0);
    iterations += count;
    consumed += count * size;
  }
  if (iterations > INT32_MAX) {
    fail(ErrorKind::exhausted, "{} samples are {} iterations, more than {}", samples, iterations,
         INT32_MAX);
  }
  return iterations;
}

}  // namespace ferry
