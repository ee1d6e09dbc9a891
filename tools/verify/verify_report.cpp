#include "tools/verify/verify_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/terminal/flags.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kProblemsShown = 20;

std::string counted(int64_t count, const char* one) {
  return fmt::format("{} {}{}", grouped(count), one, count == 1 ? "" : "s");
}

// "1 file, 129 kB" and what of it was computed.
std::string what_was_checked(const VerifyReport& report) {
  const double seconds = report.seconds;
  std::string text =
      fmt::format("checked {}, {}", counted(report.files, "file"), human_bytes(report.bytes));
  if (report.tensors > 0) text += ", " + counted(report.tensors, "tensor");
  if (report.items > 0) text += ", " + counted(report.items, "archive");
  if (report.masters > 0) text += ", " + counted(report.masters, "fp32 master");
  std::string sums;
  const auto add = [&](int64_t count, const char* one) {
    if (count > 0) sums += (sums.empty() ? "" : ", ") + counted(count, one);
  };
  add(report.digests, "digest");
  add(report.crc32s, "CRC-32");
  add(report.sha256s, "SHA-256");
  if (!sums.empty()) text += "; " + sums;
  text += " in " + human_seconds(seconds);
  if (seconds < 0.1 || report.covered_bytes == 0) return text;
  const double rate = static_cast<double>(report.covered_bytes) / seconds;
  return text + fmt::format(" ({}/s)", human_bytes(static_cast<uint64_t>(rate)));
}

}  // namespace

std::string to_text(const RunVerification& run) {
  std::string text;
  for (const VerifyReport& report : run.iterations) text += to_text(report);
  const size_t problems = run.problem_count();
  text += fmt::format(
      "{}: {} checked, {}\n", printable(run.path),
      counted(static_cast<int64_t>(run.iterations.size()), "iteration"),
      problems == 0 ? "no damage found" : counted(static_cast<int64_t>(problems), "problem"));
  if (!run.tracker_problem.empty()) text += "  " + message_text(run.tracker_problem) + "\n";
  return text + note_lines(run.notes);
}

std::string to_text(const VerifyReport& report) {
  std::string text = printable(report.path);
  if (!report.format.empty()) text += " (" + report.format + ")";
  text += report.problems.empty()
              ? ": no damage found\n"
              : ": " + counted(static_cast<int64_t>(report.problems.size()), "problem") + "\n";
  for (size_t i = 0; i < report.problems.size() && i < kProblemsShown; ++i) {
    text += "  " + message_text(report.problems[i].what, true) + "\n";
  }
  if (report.problems.size() > kProblemsShown) {
    text += fmt::format("  and {} more, with --json\n", report.problems.size() - kProblemsShown);
  }
  text += what_was_checked(report) + "\n";
  return text + note_lines(report.notes, kNotesShown);
}

nlohmann::json to_json(const RunVerification& run) {
  using nlohmann::json;
  json iterations = json::array();
  for (const VerifyReport& report : run.iterations) iterations.push_back(to_json(report));
  return {{"path", run.path},
          {"problem", run.tracker_problem.empty() ? json(nullptr) : json(run.tracker_problem)},
          {"problem_count", run.problem_count()},
          {"notes", run.notes},
          {"iterations", std::move(iterations)}};
}

nlohmann::json to_json(const VerifyReport& report) {
  using nlohmann::json;
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? json(nullptr) : json(text);
  };
  json problems = json::array();
  for (const Problem& problem : report.problems) {
    problems.push_back({{"file", text_or_null(problem.file)},
                        {"offset", problem.bytes > 0 ? json(problem.offset) : json(nullptr)},
                        {"bytes", problem.bytes > 0 ? json(problem.bytes) : json(nullptr)},
                        {"holds", text_or_null(problem.holds)},
                        {"message", problem.what}});
  }
  json non_finite = json::array();
  for (const NonFiniteTensor& tensor : report.non_finite) {
    non_finite.push_back({{"tensor", tensor.name},
                          {"nan", tensor.values.nan},
                          {"infinite", tensor.values.infinite},
                          {"elements", tensor.elements}});
  }
  return {{"path", report.path},
          {"format", text_or_null(report.format)},
          {"iteration", report.iteration ? json(*report.iteration) : json(nullptr)},
          {"manifest", report.has_manifest},
          {"problems", std::move(problems)},
          {"non_finite", std::move(non_finite)},
          {"notes", report.notes},
          {"files", report.files},
          {"bytes", report.bytes},
          {"covered_bytes", report.covered_bytes},
          {"tensors", report.tensors},
          {"masters", report.masters},
          {"archives", report.items},
          {"digests", report.digests},
          {"crc32s", report.crc32s},
          {"sha256s", report.sha256s},
          {"seconds", report.seconds}};
}

}  // namespace ferry::tool
