#include "tools/reshard/reshard_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/terminal/flags.h"
#include "tools/terminal/layout.h"
#include "tools/terminal/text.h"
#include "tools/terminal/written.h"

namespace ferry::tool {
namespace {

std::string side_text(const ReshardReport::Side& side) {
  std::string text = fmt::format("{} ({}", printable(side.path), side.format);
  if (const std::string layout = layout_text(side.layout); !layout.empty()) text += "; " + layout;
  if (!side.optimizer.empty()) text += "; optimizer " + side.optimizer;
  if (side.remainders) text += ", masters as 16-bit remainders";
  return text + ")";
}

nlohmann::json side_json(const ReshardReport::Side& side) {
  using nlohmann::json;
  return {{"path", side.path},
          {"format", side.format},
          {"optimizer", side.optimizer.empty() ? json(nullptr) : json(side.optimizer)},
          {"masters", side.optimizer.empty() ? json(nullptr)
                      : side.remainders      ? json("remainders")
                                             : json("fp32")},
          {"layout", layout_json(side.layout)}};
}

}  // namespace

std::string to_text(const ReshardReport& report) {
  std::string text = side_text(report.source) + "\n  -> " + side_text(report.target) + "\n";
  text += written_text(report.written, report.tensors, report.parameters);
  return text + note_lines(report.warnings);
}

nlohmann::json to_json(const ReshardReport& report) {
  using nlohmann::json;
  return {
      {"source", side_json(report.source)},
      {"target", side_json(report.target)},
      {"iteration", report.iteration ? json(*report.iteration) : json(nullptr)},
      {"tensors", report.tensors},
      {"parameters", report.parameters},
      {"bytes", report.written.bytes()},
      {"free_bytes", report.written.free_bytes ? json(*report.written.free_bytes) : json(nullptr)},
      {"files", written_json(report.written)},
      {"warnings", report.warnings},
      {"dry_run", report.written.dry_run},
      {"seconds", report.written.seconds}};
}

}  // namespace ferry::tool
