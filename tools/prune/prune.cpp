#include "ops/prune.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/commands.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/flags.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"
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

int64_t going(const std::vector<PrunedItem>& items) {
  return std::count_if(items.begin(), items.end(),
                       [](const PrunedItem& item) { return item.goes; });
}

std::vector<std::string> row(const PrunedItem& item) {
  return {printable(item.name), item.goes ? "goes" : "stays",
          item.goes ? human_bytes(item.bytes) : "", message_text(item.reason)};
}

std::string result_line(const PruneReport& report) {
  const int64_t iterations = going(report.iterations), leftovers = going(report.leftovers);
  if (iterations + leftovers == 0) return "nothing to remove";
  std::string text = report.dry_run ? "would remove " : "removed ";
  text += fmt::format("{} of {} iterations", iterations, report.iterations.size());
  if (leftovers > 0) text += fmt::format(" and {} leftovers", leftovers);
  return text + ", " + human_bytes(report.bytes);
}

nlohmann::json items_json(const std::vector<PrunedItem>& items) {
  using nlohmann::json;
  json array = json::array();
  for (const PrunedItem& item : items) {
    array.push_back({{"name", item.name},
                     {"iteration", item.iteration ? json(*item.iteration) : json(nullptr)},
                     {"goes", item.goes},
                     {"reason", item.reason},
                     {"bytes", item.goes ? json(item.bytes) : json(nullptr)}});
  }
  return array;
}

std::string prune_text(const std::string& run, const PruneReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const PrunedItem& item : report.iterations) rows.push_back(row(item));
  for (const PrunedItem& item : report.leftovers) rows.push_back(row(item));
  std::string text = printable(run) + "\n" + table(rows, {false, false, true, false}, "  ");
  text += result_line(report) + "\n";
  return text + note_lines(report.notes);
}

nlohmann::json prune_json(const std::string& run, const PruneReport& report) {
  return {{"run", run},
          {"dry_run", report.dry_run},
          {"iterations", items_json(report.iterations)},
          {"leftovers", items_json(report.leftovers)},
          {"removed", going(report.iterations)},
          {"bytes", report.bytes},
          {"notes", report.notes}};
}

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
      flags.json ? json_text(prune_json(flags.path, report)) : prune_text(flags.path, report);
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
