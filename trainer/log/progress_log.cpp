#include "trainer/log/progress_log.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "trainer/log/log_files.h"
#include "trainer/log/log_lines.h"
#include "trainer/schedule/flops.h"

namespace ferry {

namespace {

constexpr uint64_t kMostProgressBytes = 64 << 20;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// "NAME: 3.2e+15"; -1 if there is no such field.
double field(std::string_view text) {
  const size_t colon = text.find(": ");
  if (colon == std::string_view::npos) return -1;
  text.remove_prefix(colon + 2);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error != std::errc() || end == text.data() ? -1 : value;
}

int64_t seconds_of(std::string_view text) {
  std::tm local{};
  const std::string copy(text);
  const char* end = ::strptime(copy.c_str(), "%Y-%m-%d %H:%M:%S", &local);
  if (end == nullptr || *end != '\0') return -1;
  local.tm_isdst = -1;
  return static_cast<int64_t>(std::mktime(&local));
}

}  // namespace

std::optional<ProgressStart> read_progress(std::string_view text, int64_t world_size) {
  ProgressStart start;
  bool found = false;
  double saved = 0, pending = -1;
  for (const std::string_view line : split(text, '\n')) {
    const auto parts = split(line, '\t');
    if (parts.size() < 4) continue;
    const double ranks = field(parts[2]);
    const double operations = parts.size() > 7 ? field(parts[7]) : -1;
    const std::string_view message = parts[3];
    if (message == "Saved checkpoint") {
      if (operations >= 0) saved = operations;
    } else if (message == "Saving async checkpoint") {
      pending = operations;
    } else if (message == "Saved async checkpoint") {
      if (pending >= 0) saved = pending;
      pending = -1;
    }
    if (ranks != static_cast<double>(world_size)) {
      if (ranks >= 0) found = false;
    } else if (message == kJobStarted && !found) {
      start = {seconds_of(parts[0]), saved};
      found = start.seconds >= 0;
    }
  }
  if (!found) return std::nullopt;
  return start;
}

std::string saved_message(const ProgressSave& s, bool pending) {
  return fmt::format(
      "{}\tIteration: {}\tJob throughput: {:.1f} TFLOP/s/GPU\tCumulative throughput: {:.1f} "
      "TFLOP/s/GPU\tFloating-point operations: {:.2e}\tTokens (in billions): {:.2f}",
      pending ? "Saving async checkpoint" : "Saved checkpoint", s.iteration, s.job_teraflops,
      s.cumulative_teraflops, s.operations, static_cast<double>(s.tokens) / 1e9);
}

std::string committed_message(int64_t iteration) {
  return fmt::format("Saved async checkpoint\tIteration: {}", iteration);
}

std::string progress_line(int64_t seconds, const std::string& job, int64_t world_size,
                          std::string_view message) {
  const std::string time = date_and_time(seconds * 1'000'000);
  return fmt::format("{}\tJob ID: {}\t# GPUs: {}\t{}\n", time.substr(0, time.find('.')), job,
                     world_size, message);
}

ProgressLog::ProgressLog(const FileSystem& files, const std::string& folder, std::string job,
                         int64_t world_size)
    : files_(files),
      path_(join(folder, "progress.txt")),
      job_(std::move(job)),
      world_size_(world_size) {
  make_folders(files, folder);
}

void ProgressLog::append(std::string_view message) const {
  LineFile file(files_, path_);
  file.append(progress_line(now_microseconds() / 1'000'000, job_, world_size_, message));
  file.sync();
}

void ProgressLog::append_save(ProgressSave save, bool pending) const {
  const auto start = read_progress(read_file(files_, path_, kMostProgressBytes), world_size_);
  if (start) {
    const auto seconds = now_microseconds() / 1'000'000 - start->seconds;
    if (seconds > 0) {
      save.cumulative_teraflops =
          teraflops(save.operations - start->operations, static_cast<double>(seconds), world_size_);
    }
  }
  append(saved_message(save, pending));
}

}  // namespace ferry
