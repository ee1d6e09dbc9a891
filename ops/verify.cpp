#include "ops/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/core/passing_values.h"
#include "ckpt/format/other_programs.h"
#include "ckpt/store/run_folder.h"
#include "ckpt/store/step_folders.h"
#include "convert/check/model_check.h"
#include "convert/check/names.h"
#include "convert/state_dict/state_dict.h"

namespace ferry {
namespace {

// What a Hugging Face folder, or another program's state dict, lacks or has too much according to
// its config.json.
void add_model_problems(VerifyReport& report) {
  const bool has_config = report.format == name(Format::hugging_face);
  const std::string_view ranked[] = {name(Format::dcp), name(Format::fsdp),
                                     name(Format::deepspeed)};
  const bool may_have = report.problems.empty() && std::ranges::count(ranked, report.format) > 0;
  if (!has_config && !may_have) return;
  Checkpoint checkpoint = open_checkpoint(posix_file_system(), report.path);
  if (std::string wrapped = unwrap_names(checkpoint); !wrapped.empty()) {
    report.problems.push_back({{}, {}, {}, {}, std::move(wrapped)});
  }
  ModelCheck check = has_config ? check_model(checkpoint) : check_state_dict(checkpoint);
  for (std::string& problem : check.problems) {
    report.problems.push_back({{}, {}, {}, {}, std::move(problem)});
  }
  std::ranges::move(check.warnings, std::back_inserter(report.notes));
}

// Names of the steps of another program's run; none for other folders.
std::vector<std::string> steps_of(const FileSystem& files, const std::string& path) {
  std::vector<std::string> steps = step_names(files, path);
  if (!steps.empty() && !leads_to(files, path, steps.front())) steps.clear();
  return steps;
}

VerifyReport verify_iteration(const std::string& path, const std::string& iteration,
                              VerifyOptions options) {
  options.iteration = iteration;
  return verify(path, options);
}

void fail_not_a_run(const std::string& path) {
  fail(ErrorKind::invalid, "{}: is not a run folder, so it has no iterations to check one by one",
       path);
}

}  // namespace

VerifyReport verify(const std::string& path, const VerifyOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  VerifyReport report = verify(posix_file_system(), path, options);
  add_model_problems(report);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

size_t RunVerification::problem_count() const {
  size_t count = tracker_problem.empty() ? 0 : 1;
  for (const VerifyReport& report : iterations) count += report.problems.size();
  return count;
}

RunVerification verify_run(const std::string& path, const VerifyOptions& options,
                           const std::function<void(const VerifyReport&)>& done) {
  const auto file_system = posix_file_system();
  RunVerification run;
  run.path = path;
  const auto check = [&](const std::string& folder, const std::string& iteration) {
    run.iterations.push_back(verify_iteration(folder, iteration, options));
    if (done) done(run.iterations.back());
  };
  const PathKind kind = file_system->status(path).kind;
  if (kind == PathKind::missing) fail_missing(*file_system, path);
  if (kind != PathKind::folder) fail_not_a_run(path);
  for (const std::string& step : steps_of(*file_system, path)) check(path, step);
  if (!run.iterations.empty()) return run;
  if (!is_run_folder(*file_system, path)) fail_not_a_run(path);
  const RunFolder folder = read_run_folder(*file_system, path);
  run.tracker_problem = problem_of_tracker(folder);
  if (!run.tracker_problem.empty()) {
    run.tracker_problem = fmt::format("{} {}", kTrackerName, run.tracker_problem);
  }
  for (const IterationFolder& iteration : folder.iterations) {
    if (iteration.complete()) {
      check(join(path, iteration.name), {});
    } else {
      run.notes.push_back(
          fmt::format("{} is unfinished: {}", iteration.name, iteration.unfinished()));
    }
  }
  return run;
}

SealReport seal(const std::string& path, const SealOptions& options) {
  return seal(posix_file_system(), path, options);
}

}  // namespace ferry
