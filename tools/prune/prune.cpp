#include "ops/prune.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/commands.h"
#include "tools/prune/prune_report.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/validators.h"

namespace ferry::tool {
namespace {

struct PruneFlags {
  std::string path;
  PruneRunOptions options;
  bool json = false, progress = false;
};

constexpr const char* kPruneExamples = R"(Examples:
  ferry prune runs/llama --keep-last 3 --dry-run             what would go, and why the rest stays
  ferry prune runs/llama --keep-last 3 --keep-every 1000     the last three, and 1000, 2000, ...
  ferry prune runs/llama --keep-last 1 --unfinished          and what interrupted saves left
  ferry prune runs/llama --keep-last 1 --verify              the last good one: all its bytes are right

An iteration is good if it opens, all its files exist and have the right length (also by
ferry.manifest.json, if there is one), and the optimizer state that was saved with it can be read.
Never removed: the last good iteration, the one that the tracker names, the release, what ferry is
reading or writing on any host whose locks are visible, and what any program on this host has open.
Use by other programs on other hosts or in containers cannot be seen.
)";

void run(const PruneFlags& flags) {
  PruneReport report;
  {
    const InterruptScope interrupt;
    ProgressLine removing("removing", flags.progress), verifying("verifying", flags.progress);
    PruneRunOptions options = flags.options;
    options.progress = [&](const Progress& progress) { removing.show(progress); };
    options.verify_progress = [&](const Progress& progress) { verifying.show(progress); };
    options.cancel = interrupt.flag();
    report = prune(flags.path, options);
  }
  const std::string text =
      flags.json ? json_text(to_json(flags.path, report)) : to_text(flags.path, report);
  if (flags.options.dry_run) return print(text);
  print_done(text, flags.path + " is pruned");
}

}  // namespace

void add_prune(Command& program) {
  auto flags = std::make_shared<PruneFlags>();
  Command command = program.add_command("prune", "Delete old iterations of a run");
  command.add_option("RUN", flags->path, "A run folder").required().type_name("");
  command
      .add_option("--keep-last", flags->options.keep.keep_last, "Keep the N latest good iterations")
      .type_name("N")
      .check(whole_number(1, INT64_MAX));
  command
      .add_option("--keep-every", flags->options.keep.keep_every,
                  "Keep every iteration divisible by K (in addition to --keep-last)")
      .type_name("K")
      .check(whole_number(1, INT64_MAX));
  command.add_flag("--unfinished", flags->options.keep.unfinished,
                   "Also remove unfinished iterations older than the last good one");
  command.add_flag("--verify", flags->options.verify,
                   "Check every byte of the last good iteration before anything is removed");
  command.add_flag("--dry-run", flags->options.dry_run,
                   "Show what would be removed, and remove nothing");
  add_json_option(command, flags->json);
  add_progress_option(command, flags->progress);
  command.footer(kPruneExamples);
  command.action([flags] { run(*flags); });
}

}  // namespace ferry::tool
