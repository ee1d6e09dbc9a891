#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/report/report_page.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr int kBins = 64;
constexpr size_t kMostHistograms = 500;

struct Flags {
  std::string path, output, histograms;
  OpenOptions open;
  uint64_t memory_bytes = 0;
  bool overwrite = false;
};

constexpr const char* kExamples = R"(Examples:
  ferry report runs/llama -o report.html
  ferry report runs/llama -o report.html --histograms '*norm*'

The page needs no network and runs no scripts.
)";

void add_histograms(const Flags& flags, const Catalog& catalog, ReportContent& content) {
  const InterruptScope interrupt;
  ProgressLine line("reading");
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

// The page appears whole or not at all.
void write_page(const FileSystem& file_system, const std::string& path, const std::string& page) {
  const SplitPath parts = split_path(path);
  const std::string aside = join(parts.parent, "." + parts.name + ".part");
  file_system.remove_all(aside);
  try {
    write_file(file_system, aside, page);
    file_system.replace(aside, path);
  } catch (...) {
    file_system.remove_all(aside);
    throw;
  }
}

void check_output(const FileSystem& file_system, const Flags& flags) {
  const PathStatus status = file_system.status(flags.output);
  if (status.kind == PathKind::missing) return;
  if (status.kind != PathKind::file) {
    fail(ErrorKind::invalid, "{} is no file", printable(flags.output));
  }
  if (!flags.overwrite) {
    fail(ErrorKind::invalid, "{} exists; --overwrite replaces it", printable(flags.output));
  }
}

void run(const Flags& flags) {
  const auto file_system = posix_file_system();
  check_output(*file_system, flags);
  const Checkpoint checkpoint = open_checkpoint(file_system, flags.path, flags.open);
  const InspectReport inspect = make_report(checkpoint, {});
  ReportContent content{&inspect, {}};
  if (!flags.histograms.empty()) add_histograms(flags, checkpoint.catalog, content);
  const std::string page = report_page(content);
  if (checkpoint.mark) checkpoint.mark->check();
  write_page(*file_system, flags.output, page);
  print(fmt::format("wrote {}, {}\n", printable(flags.output), human_bytes(page.size())));
}

}  // namespace

void add_report(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      program.add_subcommand("report", "Write a page about a checkpoint, to open in a browser");
  add_path(*command, flags->path);
  command->add_option("-o,--output", flags->output, "The page to write")
      ->required()
      ->type_name("FILE");
  add_iteration_option(*command, flags->open.iteration);
  command
      ->add_option("--histograms", flags->histograms,
                   "Read tensors that match, and draw how their values are distributed")
      ->type_name("GLOB");
  add_raw_option(*command, flags->open.raw);
  command->add_flag("--overwrite", flags->overwrite, "Replace FILE");
  add_memory_option(*command, flags->memory_bytes);
  command->footer(kExamples);
  command->callback([flags] { run(*flags); });
}

}  // namespace ferry::tool
