#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "ops/verify.h"
#include "tools/commands.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/flags.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

struct SealFlags {
  std::string path, integrity;
  SealOptions options;
  bool json = false, progress = false;
};

constexpr const char* kSealExamples = R"(Examples:
  ferry seal llama-hf                       create checksums, or update them after an edit
  ferry seal runs/llama --iteration 500     of an iteration that Megatron-LM wrote
  ferry seal llama-hf --dry-run             what differs from the existing manifest

A checkpoint that its own checksums show to be damaged is not sealed.
)";

std::string listed(const char* what, const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kNotesShown; ++i) {
    text += fmt::format("  {} {}\n", what, printable(names[i]));
  }
  if (names.size() > kNotesShown) {
    text += fmt::format("  {} {} more, with --json\n", what, names.size() - kNotesShown);
  }
  return text;
}

std::string text_of(const SealReport& report, bool dry_run, double seconds) {
  const auto plural = [](int64_t count, const char* one) {
    return fmt::format("{} {}{}", grouped(count), one, count == 1 ? "" : "s");
  };
  const bool same = report.added.empty() && report.removed.empty() && report.changed.empty();
  std::string text = printable(report.path);
  if (!report.format.empty()) text += " (" + report.format + ")";
  text += dry_run ? ": would be sealed" : report.renewed ? ": sealed anew" : ": sealed";
  if (report.renewed) text += same ? ", nothing has changed" : "";
  text += "\n" + listed("added:", report.added) + listed("removed:", report.removed) +
          listed("changed:", report.changed);
  text += fmt::format("{}, {}, {}, {} in {}\n", plural(report.files, "file"),
                      human_bytes(report.bytes), plural(report.tensors, "tensor"),
                      plural(report.items, "digest"), human_seconds(seconds));
  return text + note_lines(report.notes);
}

nlohmann::json json_of(const SealReport& report, bool dry_run, double seconds) {
  return {{"path", report.path},     {"format", report.format},   {"renewed", report.renewed},
          {"added", report.added},   {"removed", report.removed}, {"changed", report.changed},
          {"files", report.files},   {"bytes", report.bytes},     {"tensors", report.tensors},
          {"digests", report.items}, {"sha256", report.sha256},   {"notes", report.notes},
          {"dry_run", dry_run},      {"seconds", seconds}};
}

void run(const SealFlags& flags) {
  SealOptions options = flags.options;
  options.sha256 = !flags.integrity.empty();
  std::string text;
  SealReport report;
  {
    const InterruptScope interrupt;
    ProgressLine line("sealing", flags.progress);
    options.engine.cancel = interrupt.flag();
    options.engine.progress = [&](const Progress& progress) { line.show(progress); };
    report = seal(flags.path, options);
    const double seconds = line.seconds();
    text = flags.json ? json_text(json_of(report, options.dry_run, seconds))
                      : text_of(report, options.dry_run, seconds);
  }
  if (options.dry_run) return print(text);
  print_done(text, report.path + " is sealed");
}

}  // namespace

void add_seal(Command& program) {
  auto flags = std::make_shared<SealFlags>();
  Command command = program.add_command("seal", "Create or update a checkpoint's checksums");
  add_path(command, flags->path);
  add_iteration_option(command, flags->options.iteration);
  command
      .add_option("--integrity", flags->integrity,
                  "sha256: also write integrity.json, as Megatron Core does (an existing one is "
                  "always updated)")
      .one_of({"sha256"})
      .type_name("KIND");
  command.add_flag("--dry-run", flags->options.dry_run, "Compute everything and write nothing");
  add_engine_options(command, flags->options.engine);
  add_json_option(command, flags->json);
  add_progress_option(command, flags->progress);
  command.footer(kSealExamples);
  command.action([flags] { run(*flags); });
}

}  // namespace ferry::tool
