#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/runs/compare.h"
#include "tools/runs/copy.h"
#include "tools/runs/export.h"
#include "tools/runs/follow.h"
#include "tools/runs/metrics.h"
#include "tools/runs/run_list.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/exit_code.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

constexpr size_t kMostOfExit = 80;  // bytes in the table

struct RunsFlags {
  std::string folder, run, output, to, name, metric = "lm loss";
  std::vector<std::string> runs;
  FollowOptions follow;
  CopyRuns copy;
  bool json = false;
};

json or_null(const auto& value) { return value ? json(*value) : json(nullptr); }

json status_json(const RunStatus& run) {
  const bool has_finite_loss = run.loss && std::isfinite(*run.loss);
  return {{"name", run.name},
          {"paths", run.paths},
          {"state", run.state},
          {"iteration", run.iteration},
          {"planned_iterations", run.planned > 0 ? json(run.planned) : json(nullptr)},
          {"loss", has_finite_loss ? json(*run.loss) : json(nullptr)},  // JSON has no NaN
          {"not_finite", run.losses_not_finite},
          {"tokens_per_second", or_null(run.tokens_per_second)},
          {"teraflops", or_null(run.teraflops)},
          {"last_good_iteration", or_null(run.last_good)},
          {"job", run.job.empty() ? json(nullptr) : json(run.job)},
          {"exit", run.why.empty() ? json(nullptr) : json(run.why)}};
}

std::vector<std::string> status_row(const RunStatus& run) {
  std::string iteration = grouped(run.iteration);
  if (run.planned > 0) iteration += " of " + grouped(run.planned);
  std::string speed;
  if (run.tokens_per_second) {
    speed = grouped(static_cast<int64_t>(*run.tokens_per_second)) + " tokens/s";
  } else if (run.teraflops) {
    speed = fmt::format("{:.1f} TFLOP/s", *run.teraflops);
  }
  return {printable(run.name),
          run.state,
          iteration,
          run.loss ? fmt::format("{:.6g}", *run.loss) : "",
          speed,
          run.last_good ? grouped(*run.last_good) : "",
          printable(run.job),
          shortened(printable(run.why), kMostOfExit)};
}

// A run of somebody else's, whose files may not be read, does not hide the others.
std::optional<RunStatus> readable_state(const FileSystem& files, const FoundRun& run,
                                        const std::vector<QueuedJob>& jobs, int64_t now,
                                        std::vector<std::string>& unreadable) {
  try {
    return state_of_run(files, run, jobs, now);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io) throw;
    unreadable.push_back(error.what());
    return std::nullopt;
  }
}

void list(const RunsFlags& flags) {
  const auto files = posix_file_system();
  const auto jobs = queued_jobs();
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  json all = json::array();
  std::vector<std::vector<std::string>> rows = {
      {"run", "state", "iteration", "loss", "speed", "last good", "job", "exit"}};
  std::vector<std::string> unreadable;
  for (const FoundRun& found : find_runs(*files, flags.folder, unreadable)) {
    const auto run =
        readable_state(*files, found, jobs.value_or(std::vector<QueuedJob>()), now, unreadable);
    if (!run) continue;
    all.push_back(status_json(*run));
    rows.push_back(status_row(*run));
  }
  for (const std::string& problem : unreadable) {
    print_aside("warning: left out: " + printable(problem) + "\n");
  }
  if (flags.json) return print(json_text({{"runs", all}, {"queue", jobs.has_value()}}));
  if (rows.size() == 1) return print("no runs below " + printable(flags.folder) + "\n");
  print(table(rows, {false, false, true, true, true, true, false, false}, ""));
  if (!jobs) print_aside("note: no queue was asked: there is no squeue, or none answered\n");
}

void export_run(const RunsFlags& flags) {
  const auto files = posix_file_system();
  if (flags.to != "csv" && flags.output == "-") {
    fail(ErrorKind::invalid, "--to {} writes a folder; -o - prints csv alone", flags.to);
  }
  const Metrics::Table table = read_metrics(*files, flags.run);
  if (flags.to == "tensorboard") {
    export_tensorboard(files, table, flags.output);
  } else if (flags.to == "wandb") {
    export_wandb(files, table, flags.output, flags.name.empty() ? flags.run : flags.name);
  } else {
    return export_csv(files, table, flags.output);
  }
  const std::string output = printable(flags.output);
  print_done(
      fmt::format("wrote {}: {} iterations\n", output, table.size()) +
          (flags.to == "wandb" ? "to send it: wandb sync " + output + "/wandb/offline-run-*\n"
                               : ""),
      flags.output + " is complete");
}

void copy(const RunsFlags& flags) {
  for (const std::string& name : copy_runs(posix_file_system(), flags.copy)) {
    print("copied to " + printable(join(flags.copy.to, name)) + "\n");
  }
}

void compare(const RunsFlags& flags) {
  const auto runs = compare_runs(*posix_file_system(), flags.runs, flags.metric);
  print(flags.json ? json_text(comparison_json(runs, flags.metric))
                   : comparison_text(runs, flags.metric));
}

void add_list(Command& runs) {
  auto flags = std::make_shared<RunsFlags>();
  Command command =
      runs.add_command("list", "List the runs below a folder: state, iteration, loss, speed");
  command.add_option("FOLDER", flags->folder, "Folder to search for runs").required().type_name("");
  add_json_option(command, flags->json);
  command.footer("Examples:\n  ferry runs list experiments\n");
  command.action([flags] { list(*flags); });
}

void add_follow(Command& runs, int& exit_code) {
  auto flags = std::make_shared<RunsFlags>();
  Command command =
      runs.add_command("follow", "Follow a run: iterations, saves and exits as they happen");
  command.add_option("RUN", flags->run, "Log, metrics or run folder").required().type_name("");
  command.add_flag("--once", flags->follow.once, "Print what is there and exit");
  command.add_option("--until", flags->follow.until, "Stop after this iteration")
      .type_name("ITERATION")
      .check(whole_number(0, INT64_MAX));
  command.add_option("--lines", flags->follow.lines, "Past lines to print first")
      .type_name("N")
      .check(whole_number(0, 1'000'000))
      .default_text("10");
  command.footer(
      "Examples:\n  ferry runs follow runs/llama            until Ctrl-C (exit code 130)\n"
      "  ferry runs follow job.log --once\n");
  command.action([flags, &exit_code] {
    if (follow_run(*posix_file_system(), flags->run, flags->follow)) return;
    exit_code = ferry::tool::exit_code(ErrorKind::cancelled);  // without a word: it ends so
  });
}

void add_compare(Command& runs) {
  auto flags = std::make_shared<RunsFlags>();
  Command command =
      runs.add_command("compare", "Compare the losses of runs, and show where they diverge");
  command
      .add_option("RUN", flags->runs,
                  "Logs, metrics or run folders; the others are compared with the first")
      .required()
      .type_name("");
  command.add_option("--metric", flags->metric, "Metric to compare")
      .type_name("NAME")
      .default_text("lm loss");
  add_json_option(command, flags->json);
  command.footer("Examples:\n  ferry runs compare runs/a runs/b --metric grad_norm\n");
  command.action([flags] { compare(*flags); });
}

void add_export(Command& runs) {
  auto flags = std::make_shared<RunsFlags>();
  flags->to = "csv";
  Command command = runs.add_command("export", "Export a run's metrics for other programs");
  command.add_option("RUN", flags->run, "Log, metrics or run folder").required().type_name("");
  command.add_option("-o,--output", flags->output, "A new file (csv; - prints) or folder")
      .required()
      .type_name("OUT");
  command.add_option("--to", flags->to, "csv, tensorboard or wandb")
      .type_name("FORM")
      .default_text("csv")
      .one_of({"csv", "tensorboard", "wandb"});
  command.add_option("--name", flags->name, "Name of the run in wandb").type_name("NAME");
  command.footer(
      "Examples:\n  ferry runs export runs/llama -o llama.csv\n"
      "  ferry runs export runs/llama --to tensorboard -o events\n");
  command.action([flags] { export_run(*flags); });
}

void add_copy(Command& runs) {
  auto flags = std::make_shared<RunsFlags>();
  Command command = runs.add_command("copy", "Copy logs and metrics of runs to another folder");
  command.add_option("--from", flags->copy.from, "Folder of runs").required().type_name("FOLDER");
  command.add_option("--to", flags->copy.to, "Folder to copy to").required().type_name("FOLDER");
  command.add_option("--runs", flags->copy.runs, "Runs below --from to copy")
      .required()
      .type_name("NAME");
  command.add_option("--names", flags->copy.names, "New names of the copies").type_name("NAME");
  command.footer(
      "Examples:\n  ferry runs copy --from projects/a --to projects/b --runs llama gpt\n");
  command.action([flags] { copy(*flags); });
}

}  // namespace

void add_runs(Command& program, int& exit_code) {
  Command runs = program.add_command(
      "runs", "List, follow and compare training runs; export and copy their metrics");
  runs.require_command();
  runs.footer(
      "Examples:\n  ferry runs list experiments\n"
      "  ferry runs compare runs/a runs/b\n"
      "  ferry runs export --help                   the options of a command\n");
  add_list(runs);
  add_follow(runs, exit_code);
  add_compare(runs);
  add_export(runs);
  add_copy(runs);
}

}  // namespace ferry::tool
