#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/verify/verify_report.h"

namespace ferry::tool {
namespace {

struct Flags {
  std::string path;
  VerifyOptions options;
  bool json = false;
};

constexpr const char* kExamples = R"(Examples:
  ferry verify llama-hf                      all that ferry.manifest.json covers: every byte
  ferry verify runs/llama --iteration 500    CRC-32 of every item, structure, the tracker
  ferry verify runs/llama --json | jq '.problems[].message'

Exits with 0 when no damage was found, with 4 when there is some.
)";

VerifyReport run_verify(const Flags& flags, double* seconds) {
  VerifyOptions options = flags.options;
  const InterruptScope interrupt;
  options.engine.cancel = interrupt.flag();
  ProgressLine line("verifying");
  options.engine.progress = [&](const Progress& progress) { line.show(progress); };
  VerifyReport report = verify(posix_file_system(), flags.path, options);
  *seconds = line.seconds();
  return report;
}

void run(const Flags& flags) {
  double seconds = 0;
  const VerifyReport report = run_verify(flags, &seconds);
  print(flags.json ? json_text(to_json(report, seconds)) : to_text(report, seconds));
  if (report.problems.empty()) return;
  fail(ErrorKind::corrupt, "{}: {} problem{} found", report.path, report.problems.size(),
       report.problems.size() == 1 ? "" : "s");
}

}  // namespace

void add_verify(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = program.add_subcommand("verify", "Look for damage in a checkpoint");
  add_path(*command, flags->path);
  add_iteration_option(*command, flags->options.iteration);
  add_engine_options(*command, flags->options.engine);
  add_json_option(*command, flags->json);
  command->footer(kExamples);
  command->callback([flags] { run(*flags); });
}

}  // namespace ferry::tool
