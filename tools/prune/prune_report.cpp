#include "tools/prune/prune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/terminal/flags.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

int64_t going(const std::vector<PrunedItem>& items) {
  return std::count_if(items.begin(), items.end(),
                       [](const PrunedItem& item) { return item.goes; });
}

std::vector<std::string> row(const PrunedItem& item) {
  return {printable(item.name), item.goes ? "goes" : "stays",
          item.goes ? human_bytes(item.bytes) : "", message_text(item.reason)};
}

std::string result_line(const PruneReport& report) {
  const int64_t iterations = going(report.iterations), leftovers = going(report.leftovers);
  if (iterations + leftovers == 0) return "nothing to remove";
  std::string text = report.dry_run ? "would remove " : "removed ";
  text += fmt::format("{} of {} iterations", iterations, report.iterations.size());
  if (leftovers > 0) text += fmt::format(" and {} leftovers", leftovers);
  return text + ", " + human_bytes(report.bytes);
}

nlohmann::json items_json(const std::vector<PrunedItem>& items) {
  using nlohmann::json;
  json array = json::array();
  for (const PrunedItem& item : items) {
    array.push_back({{"name", item.name},
                     {"iteration", item.iteration ? json(*item.iteration) : json(nullptr)},
                     {"goes", item.goes},
                     {"reason", item.reason},
                     {"bytes", item.goes ? json(item.bytes) : json(nullptr)}});
  }
  return array;
}

}  // namespace

std::string to_text(const std::string& run, const PruneReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const PrunedItem& item : report.iterations) rows.push_back(row(item));
  for (const PrunedItem& item : report.leftovers) rows.push_back(row(item));
  std::string text = printable(run) + "\n" + table(rows, {false, false, true, false}, "  ");
  text += result_line(report) + "\n";
  return text + note_lines(report.notes);
}

nlohmann::json to_json(const std::string& run, const PruneReport& report) {
  return {{"run", run},
          {"dry_run", report.dry_run},
          {"iterations", items_json(report.iterations)},
          {"leftovers", items_json(report.leftovers)},
          {"removed", going(report.iterations)},
          {"bytes", report.bytes},
          {"notes", report.notes}};
}

}  // namespace ferry::tool
