#include "ckpt/store/prune.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "tools/commands.h"
#include "tools/prune/prune_report.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"

namespace ferry::tool {
namespace {

struct Flags {
  std::string path;
  Retention retention;
  bool dry_run = false, json = false;
};

constexpr const char* kExamples = R"(Examples:
  ferry prune runs/llama --keep-last 3 --dry-run             what would go, and why the rest stays
  ferry prune runs/llama --keep-last 3 --keep-every 1000     the last three, and 1000, 2000, ...
  ferry prune runs/llama --keep-last 1 --unfinished          and what interrupted saves left
)";

// A checkpoint counts as good when it opens: all its files are there and as long as they should be.
std::string problem_of(const std::shared_ptr<const FileSystem>& file_system,
                       const std::string& folder) {
  try {
    open_checkpoint(file_system, folder);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void run(const Flags& flags) {
  const std::shared_ptr<const FileSystem> file_system = posix_file_system();
  PruneReport report;
  {
    const InterruptScope interrupt;
    ProgressLine line("removing");
    PruneOptions options;
    options.dry_run = flags.dry_run;
    options.problem_of = [&](const std::string& folder) {
      interrupt.check();
      return problem_of(file_system, folder);
    };
    options.progress = [&](const Progress& progress) { line.show(progress); };
    options.cancel = interrupt.flag();
    report = prune(file_system, flags.path, flags.retention, options);
  }
  print(flags.json ? json_text(to_json(flags.path, report)) : to_text(flags.path, report));
}

}  // namespace

void add_prune(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      program.add_subcommand("prune", "Remove iterations of a run that need not be kept");
  command->add_option("RUN", flags->path, "A run folder")->required()->type_name("");
  command
      ->add_option("--keep-last", flags->retention.keep_last,
                   "Keep the N good iterations with the highest numbers")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, INT64_MAX).description(""));
  command
      ->add_option("--keep-every", flags->retention.keep_every,
                   "Keep iterations that K divides (with --keep-last: those too)")
      ->type_name("K")
      ->check(CLI::Range(int64_t{1}, INT64_MAX).description(""));
  command->add_flag("--unfinished", flags->retention.unfinished,
                    "Remove unfinished iterations older than the last good one, too");
  command->add_flag("--dry-run", flags->dry_run, "Tell what would go, and remove nothing");
  add_json_option(*command, flags->json);
  command->footer(kExamples);
  command->callback([flags] { run(*flags); });
}

}  // namespace ferry::tool
