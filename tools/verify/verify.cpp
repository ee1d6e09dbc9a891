#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/other_programs.h"
#include "ckpt/open.h"
#include "ckpt/store/run_folder.h"
#include "ckpt/store/step_folders.h"
#include "convert/check/model_check.h"
#include "convert/check/names.h"
#include "convert/state_dict/state_dict.h"
#include "tools/commands.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/exit_code.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"
#include "tools/verify/verify_report.h"

namespace ferry::tool {
namespace {

struct VerifyFlags {
  std::string path;
  VerifyOptions options;
  bool all = false, no_masters = false, no_values = false, json = false, progress = false;
};

constexpr const char* kVerifyExamples = R"(Examples:
  ferry verify llama-hf                      every byte, against ferry.manifest.json
  ferry verify runs/llama --iteration 500    CRC-32 of every item, structure, the tracker
  ferry verify runs/llama --all              every complete iteration of the run
  ferry verify runs/llama --json | jq '.problems[].message'

Exits with 0 if no damage was found, with 4 if some was.
)";

// What a Hugging Face folder, or another program's state dict, lacks or has too much, by
// config.json.
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

TimedReport verify_one(const VerifyFlags& flags, const std::string& path,
                       const std::string& iteration, const std::atomic<bool>* cancel) {
  VerifyOptions options = flags.options;
  options.iteration = iteration;
  options.masters = flags.no_masters ? Masters::not_compared : Masters::compared;
  options.values = !flags.no_values;
  options.engine.cancel = cancel;
  ProgressLine line("verifying", flags.progress);
  options.engine.progress = [&](const Progress& progress) { line.show(progress); };
  TimedReport timed;
  timed.report = verify(posix_file_system(), path, options);
  add_model_problems(timed.report);
  timed.seconds = line.seconds();
  return timed;
}

// Names of the steps of another program's run; none of other folders.
std::vector<std::string> steps_of(const FileSystem& files, const std::string& path) {
  std::vector<std::string> steps = step_names(files, path);
  if (!steps.empty() && !leads_to(files, path, steps.front())) steps.clear();
  return steps;
}

// Every complete iteration by itself, and the tracker; of another program's run every step.
RunReport verify_all(const VerifyFlags& flags, const std::atomic<bool>* cancel) {
  const auto file_system = posix_file_system();
  const PathKind kind = file_system->status(flags.path).kind;
  if (kind == PathKind::missing) fail_missing(*file_system, flags.path);
  RunReport all{flags.path, {}, {}, {}};
  if (kind == PathKind::folder) {
    for (const std::string& step : steps_of(*file_system, flags.path)) {
      all.iterations.push_back(verify_one(flags, flags.path, step, cancel));
    }
  }
  if (!all.iterations.empty()) return all;
  if (kind != PathKind::folder || !is_run_folder(*file_system, flags.path)) {
    fail(ErrorKind::invalid, "--all checks the iterations of a run folder, but {} is not one",
         flags.path);
  }
  const RunFolder run = read_run_folder(*file_system, flags.path);
  all.problem = problem_of_tracker(run);
  if (!all.problem.empty()) all.problem = fmt::format("{} {}", kTrackerName, all.problem);
  for (const IterationFolder& folder : run.iterations) {
    if (folder.complete()) {
      all.iterations.push_back(verify_one(flags, join(flags.path, folder.name), {}, cancel));
    } else {
      all.notes.push_back(fmt::format("{} is unfinished: {}", folder.name, folder.unfinished()));
    }
  }
  return all;
}

int run(const VerifyFlags& flags) {
  std::string text, path = flags.path;
  size_t problems = 0;
  {
    const InterruptScope interrupt;
    if (flags.all) {
      const RunReport all = verify_all(flags, interrupt.flag());
      problems = problem_count(all);
      text = flags.json ? json_text(to_json(all)) : to_text(all);
    } else {
      const TimedReport one =
          verify_one(flags, flags.path, flags.options.iteration, interrupt.flag());
      problems = one.report.problems.size();
      path = one.report.path;
      text = flags.json ? json_text(to_json(one)) : to_text(one);
    }
  }
  print(text);
  if (problems == 0) return kExitOk;
  print_aside(fmt::format("ferry: error: {}: {} problem{} found\n", printable(path), problems,
                          problems == 1 ? "" : "s"));
  return exit_code(ErrorKind::corrupt);
}

}  // namespace

void add_verify(Command& program, int& exit_code) {
  auto flags = std::make_shared<VerifyFlags>();
  Command command = program.add_command("verify", "Check a checkpoint for damage");
  add_path(command, flags->path);
  add_iteration_option(command, flags->options.iteration);
  command.add_flag("--all", flags->all, "Check every complete iteration of a run folder")
      .excludes("--iteration");
  command.add_flag(
      "--no-values", flags->no_values,
      "Skip the check for NaN and infinite values (and reading tensors that have no checksum)");
  command.add_flag("--no-masters", flags->no_masters,
                   "Skip checking weights against the fp32 master weights");
  add_engine_options(command, flags->options.engine);
  add_json_option(command, flags->json);
  add_progress_option(command, flags->progress);
  command.footer(kVerifyExamples);
  command.action([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace ferry::tool
