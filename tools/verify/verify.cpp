#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/core/passing_values.h"
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

VerifyOptions options_of(const VerifyFlags& flags, const InterruptScope& interrupt,
                         std::optional<ProgressLine>& line) {
  VerifyOptions options = flags.options;
  options.masters = flags.no_masters ? Masters::not_compared : Masters::compared;
  options.values = !flags.no_values;
  options.engine.cancel = interrupt.flag();
  options.engine.progress = [&](const Progress& progress) { line->show(progress); };
  return options;
}

int run(const VerifyFlags& flags) {
  std::string text, path = flags.path;
  size_t problems = 0;
  {
    const InterruptScope interrupt;
    std::optional<ProgressLine> line;
    const auto next_line = [&] { line.emplace("verifying", flags.progress); };
    next_line();
    const VerifyOptions options = options_of(flags, interrupt, line);
    if (flags.all) {
      const RunVerification all =
          verify_run(flags.path, options, [&](const VerifyReport&) { next_line(); });
      problems = all.problem_count();
      text = flags.json ? json_text(to_json(all)) : to_text(all);
    } else {
      const VerifyReport one = verify(flags.path, options);
      problems = one.problems.size();
      path = one.path;
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
