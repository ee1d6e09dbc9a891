// What `ferry convert` says at its end.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/convert/convert_job.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kFilesShown = 12;

std::string result_line(const ConvertReport& report) {
  std::string text = fmt::format("{} tensor{}, {} parameter{}, {}", grouped(report.tensors),
                                 report.tensors == 1 ? "" : "s", human_count(report.parameters),
                                 report.parameters == 1 ? "" : "s", human_bytes(report.bytes));
  if (report.dry_run) return "would write " + text;
  text = "wrote " + text + " in " + human_seconds(report.seconds);
  if (report.seconds >= 0.1) {
    const double rate = static_cast<double>(report.bytes) / report.seconds;
    text += fmt::format(" ({}/s)", human_bytes(static_cast<uint64_t>(rate)));
  }
  return text;
}

}  // namespace

std::string to_text(const ConvertReport& report) {
  std::string text = fmt::format("{} ({}", printable(report.source), report.source_format);
  if (report.iteration) text += fmt::format(", iteration {}", grouped(*report.iteration));
  text += fmt::format(") -> {}{}\n", printable(report.target),
                      report.family.empty() ? "" : " (" + report.family + ")");
  text += result_line(report) + "\n";
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < report.files.size(); ++i) {
    // Many shards are all alike: their end and what stands beside them says more.
    const bool gap =
        report.files.size() > kFilesShown && i >= 2 && i < report.files.size() - (kFilesShown - 3);
    if (gap && i == 2) rows.push_back({"...", ""});
    if (!gap)
      rows.push_back({printable(report.files[i].first), human_bytes(report.files[i].second)});
  }
  text += table(rows, {false, true}, "  ");
  for (const std::string& warning : report.warnings) text += "note: " + printable(warning) + "\n";
  return text;
}

nlohmann::json to_json(const ConvertReport& report) {
  using nlohmann::json;
  json files = json::array();
  for (const auto& [name, bytes] : report.files)
    files.push_back({{"path", name}, {"bytes", bytes}});
  return {{"source", report.source},
          {"target", report.target},
          {"format", report.source_format},
          {"iteration", report.iteration ? json(*report.iteration) : json(nullptr)},
          {"family", report.family.empty() ? json(nullptr) : json(report.family)},
          {"tensors", report.tensors},
          {"parameters", report.parameters},
          {"bytes", report.bytes},
          {"files", std::move(files)},
          {"warnings", report.warnings},
          {"dry_run", report.dry_run},
          {"seconds", report.seconds}};
}

}  // namespace ferry::tool
