#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/inspect/inspect_report.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"

namespace ferry::tool {
namespace {

struct InspectFlags {
  std::string path;
  std::vector<std::string> tensors;  // none, or one pattern
  InspectOptions options;
  bool json = false, progress = false;
};

constexpr const char* kInspectExamples = R"(Examples:
  ferry inspect runs/llama                          the latest iteration of a run
  ferry inspect runs/llama --iteration 500 --args   another iteration, with the run's arguments
  ferry inspect llama-hf --tensors '*layers.0.*'    names, dtypes and shapes
  ferry inspect runs/llama --stats '*norm*'         minimum, maximum, mean, deviation, NaN, Inf
  ferry inspect runs/llama --json | jq .layout      everything, for scripts
)";

// A bare --tensors gives an empty pattern: all.
std::string pattern_of(const InspectFlags& flags) {
  return flags.tensors.empty() || flags.tensors.front().empty() ? "*" : flags.tensors.front();
}

void run(InspectFlags flags, bool list_tensors) {
  if (flags.path.empty() && !flags.tensors.empty()) {  // ferry inspect --tensors PATH
    flags.path = flags.tensors.front();
    flags.tensors.clear();
  }
  if (flags.path.empty()) fail(ErrorKind::invalid, "which checkpoint? Give a PATH");
  InspectOptions& options = flags.options;
  if (list_tensors) options.tensors = pattern_of(flags);
  InspectReport report;
  {
    ProgressLine line("reading", flags.progress);
    options.engine.progress = [&](const Progress& progress) { line.show(progress); };
    report = inspect(flags.path, options);
  }
  print(flags.json ? json_text(to_json(report)) : to_text(report));
}

}  // namespace

void add_inspect(Command& program) {
  auto flags = std::make_shared<InspectFlags>();
  Command command =
      program.add_command("inspect", "Show a checkpoint's format, layout and contents");
  command
      .add_option("PATH", flags->path,
                  "A run folder, an iteration folder, a Hugging Face or NeMo folder, or a file")
      .type_name("");
  add_iteration_option(command, flags->options.open.iteration);
  const Option tensors =
      command.add_option("--tensors", flags->tensors, "List all tensors, or those that match")
          .type_name("[GLOB]")
          .expected(0, 1);
  InspectOptions& options = flags->options;
  command
      .add_option("--stats", options.stats,
                  "Read matching tensors and show statistics of their values")
      .type_name("GLOB");
  command.add_flag(
      "--check-masters", options.check_masters,
      "Check the optimizer's fp32 master weights against the weights rounded from them");
  command.add_flag("--args", options.args, "Print the run's arguments");
  command.add_flag("--objects", options.objects,
                   "Print stored objects other than tensors: scheduler, random state, ...");
  add_raw_option(command, flags->options.open.raw);
  add_json_option(command, flags->json);
  add_progress_option(command, flags->progress);
  add_memory_option(command, options.engine.memory_bytes);
  command.footer(kInspectExamples);
  command.action([flags, tensors] { run(*flags, tensors.given()); });
}

}  // namespace ferry::tool
