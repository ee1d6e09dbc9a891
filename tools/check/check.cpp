#include "ops/check.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/exit_code.h"
#include "tools/terminal/flags.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

struct CheckFlags {
  std::string path;
  CheckOptions options;
  bool json = false;
};

constexpr size_t kFindingsShown = 40;

constexpr const char* kCheckExamples = R"(Examples:
  ferry check llama-hf                           is the folder whole, do all programs load it
  ferry check llama-hf --for vllm                what vLLM would fail on is a problem
  ferry check merged-hf --like Llama-3.1-8B      also against the model that it was made from
  ferry check llama-hf --json | jq '.findings[].message'

Exits with 0 if there is no problem, with 4 if there is one; warnings do not count.
)";

std::string counted(int64_t count, const char* one) {
  return fmt::format("{} {}{}", grouped(count), one, count == 1 ? "" : "s");
}

std::string to_text(const CheckReport& report) {
  const auto warnings = static_cast<int64_t>(report.findings.size()) - report.problems;
  std::string text = printable(report.path);
  if (!report.family.empty()) text += " (" + report.family + ")";
  text += report.problems == 0 ? ": no problems" : ": " + counted(report.problems, "problem");
  if (warnings > 0) text += ", " + counted(warnings, "warning");
  text += "\n";
  for (size_t i = 0; i < report.findings.size() && i < kFindingsShown; ++i) {
    const Finding& finding = report.findings[i];
    text += fmt::format("  {}: {}; {}\n", finding.is_problem ? "problem" : "warning",
                        message_text(finding.what), message_text(finding.advice));
  }
  if (report.findings.size() > kFindingsShown) {
    text += fmt::format("  and {} more, with --json\n", report.findings.size() - kFindingsShown);
  }
  return text + fmt::format("checked {} of {} in {}\n", counted(report.tensors, "tensor"),
                            counted(report.files, "file"), human_seconds(report.seconds));
}

nlohmann::json to_json(const CheckReport& report) {
  using nlohmann::json;
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? json(nullptr) : json(text);
  };
  json findings = json::array();
  for (const Finding& finding : report.findings) {
    findings.push_back({{"severity", finding.is_problem ? "problem" : "warning"},
                        {"kind", finding.kind},
                        {"subject", finding.subject},
                        {"message", finding.what},
                        {"advice", finding.advice}});
  }
  return {{"path", report.path},
          {"family", text_or_null(report.family)},
          {"for", name(report.loader)},
          {"like", text_or_null(report.like)},
          {"problem_count", report.problems},
          {"findings", std::move(findings)},
          {"tensors", report.tensors},
          {"files", report.files},
          {"seconds", report.seconds}};
}

int run(const CheckFlags& flags) {
  const CheckReport report = check(flags.path, flags.options);
  print(flags.json ? json_text(to_json(report)) : to_text(report));
  if (report.problems == 0) return kExitOk;
  print_aside(fmt::format("ferry: error: {}: {} found\n", printable(report.path),
                          counted(report.problems, "problem")));
  return exit_code(ErrorKind::corrupt);
}

}  // namespace

void add_check(Command& program, int& exit_code) {
  auto flags = std::make_shared<CheckFlags>();
  Command command = program.add_command(
      "check", "Check that a Hugging Face folder is whole and loads where it is to be used");
  add_path(command, flags->path);
  command
      .add_choice("--for", flags->options.loader,
                  {{"transformers", Loader::transformers},
                   {"vllm", Loader::vllm},
                   {"sglang", Loader::sglang}},
                  "The program that is to load it; default: any of them")
      .type_name("PROGRAM");
  command
      .add_option("--like", flags->options.like,
                  "The model that it was made from, to compare names, shapes, config.json and "
                  "files with")
      .type_name("DIR");
  add_json_option(command, flags->json);
  command.footer(kCheckExamples);
  command.action([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace ferry::tool
