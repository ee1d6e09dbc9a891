#include "tools/runs/run_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "ckpt/base/error.h"
#include "ckpt/store/run_folder.h"
#include "tools/report/training/run_sources.h"

namespace ferry::tool {
namespace {

constexpr int kMostFoldersDown = 6;
constexpr size_t kMostRunsFound = 10'000;
constexpr size_t kMostQueueBytes = 16 << 20;
constexpr int64_t kActiveSeconds = 600;  // since a file of the run last changed

bool is_folder(const FileSystem& files, const std::string& path) {
  return files.status(path).kind == PathKind::folder;
}

// Links could lead around in a circle.
bool is_link(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_symlink(path, error);
}

bool has_logs(const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [](const std::string& name) { return is_run_source(name); });
}

void search(const FileSystem& files, const std::string& path, const std::string& name, int depth,
            std::vector<FoundRun>& found, std::vector<std::string>& unreadable) {
  if (depth > kMostFoldersDown || found.size() >= kMostRunsFound) return;
  std::vector<std::string> names;
  try {
    names = files.list(path);
  } catch (const Error& error) {
    if (depth == 0) throw;
    unreadable.push_back(error.what());
    return;
  }
  std::sort(names.begin(), names.end());
  if (const auto parts = parts_of_experiment(files, path); !parts.empty()) {
    found.push_back({name, fmt::format("{}", fmt::join(parts, ","))});
    return;
  }
  const bool is_run = is_run_folder(files, path);
  if (is_run || has_logs(names)) found.push_back({name, path});
  if (is_run) return;
  for (const std::string& one : names) {
    const std::string below = join(path, one);
    if (is_link(below) || !is_folder(files, below)) continue;
    search(files, below, name == "." ? one : join(name, one), depth + 1, found, unreadable);
  }
}

std::string last_part(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().filename().string();
}

const QueuedJob* job_of(const FoundRun& run, const std::vector<QueuedJob>& jobs) {
  const std::string name = last_part(run.name == "." ? run.paths : run.name);
  const QueuedJob* found = nullptr;
  for (const QueuedJob& job : jobs) {
    const bool is_its = job.name == name || job.folder == run.paths;
    if (is_its && (found == nullptr || job.state == "RUNNING")) found = &job;
  }
  return found;
}

std::optional<double> last_value(const RunFigures& figures, std::string_view name) {
  const Series* const series = figures.find(name);
  return series == nullptr ? std::nullopt : std::optional(series->last());
}

// Unlike a speed, a loss that is not a number must be shown: the run has diverged. Hence this also
// checks series without points, which find() leaves out.
void set_loss(RunStatus& status, const RunFigures& figures) {
  for (const auto& [name, series] : figures.series) {
    const bool has_values = !series.points().empty() || series.not_finite() > 0;
    if (name != "lm loss" || !has_values) continue;
    status.loss = series.latest();
    status.losses_not_finite = series.not_finite();
  }
}

int64_t last_change(const FileSystem& files, const RunFigures& figures) {
  int64_t changed = 0;
  for (const std::string& source : figures.sources) {
    changed = std::max(changed, files.status(source).changed_seconds);
  }
  return changed;
}

}  // namespace

std::vector<QueuedJob> parse_jobs(std::string_view text) {
  std::vector<QueuedJob> jobs;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    std::array<std::string, 4> fields;
    for (size_t i = 0; i < fields.size(); ++i) {
      const size_t bar = i + 1 < fields.size() ? line.find('|') : std::string_view::npos;
      fields[i] = line.substr(0, bar);
      line.remove_prefix(bar == std::string_view::npos ? line.size() : bar + 1);
    }
    if (!fields[1].empty()) jobs.push_back({fields[0], fields[1], fields[2], fields[3]});
  }
  return jobs;
}

std::optional<std::vector<QueuedJob>> queued_jobs() {
  constexpr const char* kAsk =
      "command -v squeue >/dev/null 2>&1 && squeue --me -h -o '%i|%T|%j|%Z' 2>/dev/null";
  const auto close = [](std::FILE* pipe) { return ::pclose(pipe); };
  std::unique_ptr<std::FILE, decltype(close)> pipe(::popen(kAsk, "re"), close);
  if (!pipe) return std::nullopt;
  std::string text;
  std::array<char, 4096> piece{};
  while (const size_t bytes = std::fread(piece.data(), 1, piece.size(), pipe.get())) {
    if (text.size() < kMostQueueBytes) text.append(piece.data(), bytes);
  }
  if (::pclose(pipe.release()) != 0) return std::nullopt;
  return parse_jobs(text);
}

std::vector<FoundRun> find_runs(const FileSystem& files, const std::string& folder,
                                std::vector<std::string>& unreadable) {
  const PathKind kind = files.status(folder).kind;
  if (kind == PathKind::missing) fail(ErrorKind::not_found, "{} does not exist", folder);
  if (kind != PathKind::folder) {
    fail(ErrorKind::invalid,
         "{} is not a folder of runs; 'ferry runs follow' and 'compare' take "
         "a log",
         folder);
  }
  std::vector<FoundRun> found;
  search(files, folder, ".", 0, found, unreadable);
  return found;
}

std::optional<RunStatus> state_of_run(const FileSystem& files, const FoundRun& run,
                                      const std::vector<QueuedJob>& jobs, int64_t now) {
  RunFigures figures;
  try {
    figures = read_run_figures(files, run.paths);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;
    return std::nullopt;  // logs of something else
  }
  RunStatus status;
  status.name = run.name;
  status.paths = run.paths;
  status.state = "ended";
  status.iteration = figures.last;
  status.planned = figures.planned;
  if (!figures.on_disk.empty()) {
    status.last_good = figures.on_disk.back();
    status.iteration = std::max(status.iteration, *status.last_good);
  }
  set_loss(status, figures);
  status.tokens_per_second = last_value(figures, "tokens_per_second");
  status.teraflops = last_value(figures, "teraflops");
  if (!figures.exits.empty()) {
    status.state = "stopped";
    status.why = figures.last_exit;
  }
  if (!figures.has_ended && now - last_change(files, figures) < kActiveSeconds) {
    status.state = "active";
  }
  if (const QueuedJob* job = job_of(run, jobs)) {
    status.job = job->id + " " + job->state;
    status.state = job->state == "RUNNING" ? "running" : "queued";
  }
  if (status.planned > 0 && status.iteration >= status.planned) status.state = "finished";
  return status;
}

}  // namespace ferry::tool
