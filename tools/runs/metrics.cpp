#include "tools/runs/metrics.h"

#include <set>

#include "ckpt/base/error.h"
#include "tools/report/training/run_sources.h"
#include "tools/terminal/text.h"

namespace ferry::tool {

void Metrics::add(const LogRecord& record) {
  if (record.kind != LogRecord::Kind::figures) return;
  Lineage& lineage = record.is_json ? json_ : log_;
  if (!record.is_validation) {
    if (record.iteration < lineage.last) {
      lineage.table.erase(lineage.table.lower_bound(record.iteration), lineage.table.end());
    }
    lineage.last = record.iteration;
  }
  Values& values = lineage.table[record.iteration];
  for (const auto& [name, value] : record.figures) values[name] = value;
}

Metrics::Table Metrics::table() const {
  Table all = json_.table;
  std::set<std::string> in_json;
  for (const std::string& name : metric_names(all)) in_json.insert(name);
  for (const auto& [iteration, values] : log_.table) {
    for (const auto& [name, value] : values) {
      if (!in_json.contains(name)) all[iteration][name] = value;
    }
  }
  return all;
}

Metrics::Table read_metrics(const FileSystem& files, const std::string& paths) {
  Metrics metrics;
  read_run_records(files, paths, [&](const LogRecord& record) { metrics.add(record); });
  Metrics::Table table = metrics.table();
  if (table.empty()) {
    fail(ErrorKind::not_found,
         "{} has no iterations: expected a log of Megatron-LM or ferry, or JSON lines of "
         "--metrics-json",
         printable(paths));
  }
  return table;
}

std::vector<std::string> metric_names(const Metrics::Table& table) {
  std::set<std::string> names;
  for (const auto& [iteration, values] : table) {
    for (const auto& [name, value] : values) names.insert(name);
  }
  return {names.begin(), names.end()};
}

}  // namespace ferry::tool
