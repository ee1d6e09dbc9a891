#include "tools/convert/convert_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ckpt/store/run_folder.h"
#include "tools/terminal/flags.h"
#include "tools/terminal/layout.h"
#include "tools/terminal/text.h"
#include "tools/terminal/written.h"

namespace ferry::tool {
namespace {

std::string before_loading(const ConvertReport& report) {
  if (!report.loaded_instead) return {};
  return fmt::format("put the word {} in place of {} into {}", kReleaseName,
                     report.loaded_instead->iteration, shell_word(report.loaded_instead->tracker));
}

// A command line for a shell. A flag is a name, or a name, a blank and its value.
std::string loading_line(const ConvertReport& report) {
  if (report.load_with.empty()) return {};
  std::string line = "load with";
  const std::string first = before_loading(report);
  if (!first.empty()) line = first + ", then load with";
  for (const std::string& flag : report.load_with) {
    const size_t blank = flag.find(' ');
    line += " " + flag.substr(0, blank);
    if (blank != std::string::npos) line += " " + shell_word(flag.substr(blank + 1));
  }
  return printable(line) + "\n";
}

}  // namespace

std::string to_text(const ConvertReport& report) {
  std::string text = fmt::format("{} ({}", printable(report.source), report.source_format);
  if (report.iteration) text += fmt::format(", iteration {}", grouped(*report.iteration));
  const std::string layout = layout_text(report.layout);
  text += fmt::format(") -> {}{}{}\n", printable(report.target),
                      report.family.empty() ? "" : " (" + report.family + ")",
                      layout.empty() ? "" : ", " + layout);
  text += written_text(report.written, report.tensors, report.parameters, report.integers);
  text += loading_line(report);
  return text + note_lines(report.warnings);
}

nlohmann::json to_json(const ConvertReport& report) {
  using nlohmann::json;
  return {
      {"source", report.source},
      {"target", report.target},
      {"format", report.source_format},
      {"iteration", report.iteration ? json(*report.iteration) : json(nullptr)},
      {"family", report.family.empty() ? json(nullptr) : json(report.family)},
      {"layout", report.load_with.empty() ? json(nullptr) : layout_json(report.layout)},
      {"load_with", report.load_with},
      {"before_loading", report.loaded_instead ? json(before_loading(report)) : json(nullptr)},
      {"tensors", report.tensors},
      {"parameters", report.parameters},
      {"integers", report.integers},
      {"bytes", report.written.bytes()},
      {"free_bytes", report.written.free_bytes ? json(*report.written.free_bytes) : json(nullptr)},
      {"files", written_json(report.written)},
      {"warnings", report.warnings},
      {"dry_run", report.written.dry_run},
      {"seconds", report.written.seconds}};
}

}  // namespace ferry::tool
