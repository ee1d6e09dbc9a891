#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/store/run_folder.h"
#include "ops/output/paths.h"
#include "tools/commands.h"
#include "tools/report/page_file.h"
#include "tools/report/report_page.h"
#include "tools/report/training/run_sources.h"
#include "tools/report/training/training_page.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr int kBins = 64;
constexpr size_t kMostHistograms = 500;
constexpr size_t kMostRuns = 16;  // as many as colours and dashes can distinguish

struct ReportFlags {
  std::vector<std::string> paths;
  std::string output, histograms;
  OpenOptions open;
  uint64_t memory_bytes = 0;
  bool overwrite = false, training = false, json = false, progress = false;
};

constexpr const char* kReportExamples = R"(Examples:
  ferry report runs/llama -o report.html
  ferry report runs/llama -o report.html --histograms '*norm*'
  ferry report --training runs/llama -o training.html
  ferry report --training first.log,second.log other.log -o training.html    two runs, one of two logs
  ferry report --training metrics.jsonl --json | jq '.runs[].series["lm loss"].last'

The page needs no network and runs no scripts.
)";

void add_histograms(const ReportFlags& flags, const Catalog& catalog, ReportContent& content) {
  const InterruptScope interrupt;
  ProgressLine line("reading", flags.progress);
  const std::vector<const Entry*> entries = matching(catalog, flags.histograms);
  if (entries.size() > kMostHistograms) {
    fail(ErrorKind::invalid,
         "--histograms '{}' matches {} tensors, of which a page shows at most {}",
         printable(flags.histograms), entries.size(), kMostHistograms);
  }
  Progress progress;
  for (const Entry* entry : entries) {
    progress.bytes_total += 2 * static_cast<uint64_t>(entry->bytes());
  }
  for (const Entry* entry : entries) {
    const auto read = [&](uint64_t bytes) {
      interrupt.check();
      progress.bytes_done += bytes;
      line.show(progress);
    };
    content.histograms.emplace_back(entry,
                                    histogram(catalog, *entry, kBins, flags.memory_bytes, read));
  }
}

// Refuses a page inside a checkpoint or run folder, where it would look like one of its files.
void check_place(const FileSystem& file_system, const std::string& output,
                 const std::string& checkpoint) {
  const auto check = [&](const std::string& folder) {
    if (!is_same_or_inside(output, folder)) return;
    fail(ErrorKind::invalid, "{} would be inside the checkpoint {}; choose a place outside", output,
         folder);
  };
  check(checkpoint);
  const std::string run = canonical(checkpoint).parent_path().string();
  if (!is_run_folder(file_system, run)) return;
  for (const IterationFolder& other : read_run_folder(file_system, run).iterations) {
    check(join(run, other.name));
  }
}

void report_checkpoint(const std::shared_ptr<const FileSystem>& file_system,
                       const ReportFlags& flags) {
  const auto opened =
      std::make_shared<const Checkpoint>(open_checkpoint(file_system, flags.paths[0], flags.open));
  const Checkpoint& checkpoint = *opened;
  if (flags.output != "-") check_place(*file_system, flags.output, checkpoint.path);
  const InspectReport inspect = ferry::inspect(opened);
  ReportContent content{&inspect, {}};
  if (!flags.histograms.empty()) add_histograms(flags, checkpoint.catalog, content);
  const std::string page = report_page(content);
  check_reader_locks(checkpoint.catalog->reader_locks);
  write_page_file(file_system, {flags.output, flags.overwrite}, page);
}

std::vector<RunFigures> read_runs(const FileSystem& file_system, const ReportFlags& flags) {
  const InterruptScope interrupt;
  ProgressLine line("reading", flags.progress);
  Progress progress;
  for (const std::string& path : flags.paths) {
    progress.bytes_total += bytes_of_run_figures(file_system, path);
  }
  std::vector<RunFigures> runs;
  for (const std::string& path : flags.paths) {
    runs.push_back(read_run_figures(file_system, path, [&](uint64_t bytes) {
      interrupt.check();
      progress.bytes_done += bytes;
      line.show(progress);
    }));
  }
  return runs;
}

void report_training(const std::shared_ptr<const FileSystem>& file_system,
                     const ReportFlags& flags) {
  const std::vector<RunFigures> runs = read_runs(*file_system, flags);
  for (const RunFigures& run : runs) {
    if (!run.series.empty()) continue;
    print_aside("note: " + printable(run.name) +
                " has saves, but no log or metrics: no figures over iterations\n");
  }
  if (flags.json) return print(json_text(training_json(runs)));
  write_page_file(file_system, {flags.output, flags.overwrite}, training_page(runs));
}

void check_flags(const ReportFlags& flags, bool has_output) {
  const auto refuse = [](bool is_wrong, const char* why) {
    if (is_wrong) fail(ErrorKind::invalid, "{}", why);
  };
  const bool is_of_checkpoint =
      !flags.histograms.empty() || !flags.open.iteration.empty() || flags.open.raw;
  refuse(flags.json && !flags.training,
         "--json is for --training; 'ferry inspect --json' describes a checkpoint");
  refuse(flags.json == has_output, flags.json
                                       ? "--json prints to standard output, and takes no -o"
                                       : "-o needs the name of a file to write, or - for stdout");
  refuse(!flags.training && flags.paths.size() > 1,
         "a page is about one checkpoint; give one PATH, or --training for runs side by side");
  refuse(flags.training && is_of_checkpoint,
         "--histograms, --iteration and --raw are of a checkpoint, and --training is of runs");
  if (flags.paths.size() > kMostRuns) {
    fail(ErrorKind::invalid, "a page shows at most {} runs, and these are {}", kMostRuns,
         flags.paths.size());
  }
}

// A log is not a checkpoint, and what is a checkpoint has no such name.
void refuse_logs(const FileSystem& file_system, const ReportFlags& flags) {
  for (const std::string& path : flags.paths) {
    if (flags.training || !is_run_source(split_path(path).name)) continue;
    if (file_system.status(path).kind != PathKind::file) continue;
    fail(ErrorKind::invalid, "{} is a log of training, as its name says; give --training",
         printable(path));
  }
}

void run(const ReportFlags& flags, bool has_output) {
  check_flags(flags, has_output);
  const auto file_system = posix_file_system();
  refuse_logs(*file_system, flags);
  if (has_output) check_page_file(*file_system, {flags.output, flags.overwrite});
  flags.training ? report_training(file_system, flags) : report_checkpoint(file_system, flags);
}

}  // namespace

void add_report(Command& program) {
  auto flags = std::make_shared<ReportFlags>();
  Command command =
      program.add_command("report", "Write an HTML report on a checkpoint or on training runs");
  command
      .add_option("PATH", flags->paths,
                  "Checkpoint, run folder or file; with --training, runs: logs, folders")
      .required()
      .type_name("");
  const Option output =
      command.add_option("-o,--output", flags->output, "HTML file to write; - for standard output")
          .type_name("FILE");
  command.add_flag("--training", flags->training,
                   "Plot losses, learning rates and saves of one or more runs");
  add_json_option(command, flags->json);
  add_progress_option(command, flags->progress);
  add_iteration_option(command, flags->open.iteration);
  command
      .add_option("--histograms", flags->histograms,
                  "Read matching tensors and plot histograms of their values")
      .type_name("GLOB");
  add_raw_option(command, flags->open.raw);
  command.add_flag("--overwrite", flags->overwrite, "Replace FILE");
  add_memory_option(command, flags->memory_bytes);
  command.footer(kReportExamples);
  command.action([flags, output] { run(*flags, output.given()); });
}

}  // namespace ferry::tool
