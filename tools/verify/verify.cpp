#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"
#include "tools/verify/verify_report.h"

namespace ferry::tool {
namespace {

struct Flags {
  std::string path, iteration;
  std::string memory = "512MiB";
  int threads = 0;
  bool json = false;
};

constexpr const char* kExamples = R"(Examples:
  ferry verify llama-hf                      all that ferry.manifest.json covers: every byte
  ferry verify runs/llama --iteration 500    CRC-32 of every item, structure, the tracker
  ferry verify runs/llama --json | jq '.problems[].message'

Exits with 0 when no damage was found, with 4 when there is some.
)";

VerifyReport run_verify(const Flags& flags, double* seconds) {
  VerifyOptions options;
  options.iteration = flags.iteration;
  options.engine.memory_bytes = parse_memory(flags.memory);
  options.engine.threads = flags.threads;
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
  command->add_option("PATH", flags->path, "The checkpoint, as for inspect")
      ->required()
      ->type_name("");
  command
      ->add_option("--iteration", flags->iteration,
                   "Of a run folder: a number or 'release' (default: what the tracker says)")
      ->type_name("N");
  command->add_option("--memory", flags->memory, "Memory to read with")
      ->type_name("SIZE")
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "Threads (default: one a core, at most 16)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024).description(""));
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->footer(kExamples);
  command->callback([flags] { run(*flags); });
}

}  // namespace ferry::tool
