#include "trainer/language/sample_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ckpt/base/error.h"
#include "trainer/data/documents/file_bytes.h"
#include "trainer/language/options.h"
#include "trainer/log/log_lines.h"

namespace ferry {

bool have_same_bytes(const FileSystem& files, const std::string& a, const std::string& b) {
  try {
    const FileBytes left(files, a), right(files, b);
    return std::ranges::equal(left.bytes(), right.bytes());
  } catch (const Error&) {
    return false;
  }
}

namespace {

// Whether two datasets are the same or copies, judged by their indices.
bool are_same_tokens(const FileSystem& files, const std::string& a, const std::string& b) {
  if (a == b || a.empty() || b.empty()) return a == b;
  const PathStatus left = files.status(a + ".bin"), right = files.status(b + ".bin");
  return left.kind == PathKind::file && left.bytes == right.bytes &&
         have_same_bytes(files, a + ".idx", b + ".idx");
}

}  // namespace

// The order of samples of a run with these arguments after `iteration`.
SamplePlace place_of(const std::shared_ptr<const FileSystem>& files, const TrainArguments& a,
                     int64_t iteration, int64_t consumed) {
  DataOptions options = data_options(a);
  const DataPhase phase = data_phase(a, iteration);
  options.samples.train = phase.samples;
  auto order = train_order(files, options);
  if (!order) fail(ErrorKind::invalid, "its train split is empty");
  SamplePlace place{std::move(*order), "", consumed};
  if (!a.phase_transition_iterations.empty()) {
    place.position = (iteration - phase.first) * a.global_batch_size.value_or(1);
  }
  if (a.dataloader_type != "cyclic") return place;
  const int64_t rows = a.micro_batch_size.value_or(1);
  const auto& parts = place.order.parts;
  const int64_t size = parts.size() == 1 ? parts[0].plan.samples : place.order.samples;
  place.loader = a.data_sharding
                     ? fmt::format("cyclic {} {}", rows, std::max<int64_t>(a.data_parallel_size, 1))
                     : fmt::format("cyclic {}", size / rows * rows);
  return place;
}

SampleChange change_between(const FileSystem& files, const SamplePlace& before,
                            const SamplePlace& now) {
  SampleChange change;
  const TrainOrder &old_order = before.order, &order = now.order;
  const bool is_same_kind = before.loader == now.loader && old_order.seed == order.seed &&
                            old_order.sequence_length == order.sequence_length;
  for (const TrainOrder::Part& part : order.parts) {
    const auto old_part = std::ranges::find_if(old_order.parts, [&](const TrainOrder::Part& one) {
      return are_same_tokens(files, one.prefix, part.prefix);
    });
    const double passed = static_cast<double>(now.position) * part.share;
    const double left = static_cast<double>(order.samples - now.position) * part.share;
    if (old_part == old_order.parts.end()) {
      change.passed_over += passed;
      change.others += left;
      continue;
    }
    const double consumed = static_cast<double>(before.position) * old_part->share;
    const bool is_same = is_same_kind && old_part->range.begin == part.range.begin &&
                         old_part->range.end == part.range.end &&
                         old_part->plan.epochs == part.plan.epochs &&
                         old_part->plan.last_epoch_apart == part.plan.last_epoch_apart;
    if (is_same) {
      change.seen_again += std::clamp(consumed - passed, 0.0, std::max(left, 0.0));
      change.passed_over += std::max(passed - consumed, 0.0);
      continue;
    }
    const int64_t common =
        std::max<int64_t>(0, std::min(old_part->range.end, part.range.end) -
                                 std::max(old_part->range.begin, part.range.begin));
    const double seen_tokens = consumed * static_cast<double>(old_order.sequence_length);
    const double seen =
        std::min(1.0, seen_tokens / std::max(1.0, static_cast<double>(old_part->tokens))) *
        static_cast<double>(common) / static_cast<double>(std::max<int64_t>(part.range.count(), 1));
    change.seen_again += seen * left;
    change.passed_over += (1 - seen) * std::min(passed, static_cast<double>(part.plan.samples));
    change.others += left;
  }
  return change;
}

}  // namespace ferry
