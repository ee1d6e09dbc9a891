// Every value in a run's logs, by iteration and name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "tools/report/training/log_lines.h"

namespace ferry::tool {

/// When a run repeats iterations, the later values count: a value for iteration i drops those of
/// earlier jobs for i and all later iterations.
class Metrics {
 public:
  using Values = std::map<std::string, double>;
  using Table = std::map<int64_t, Values>;

  void add(const LogRecord& record);
  /// JSON lines have all digits: a name that they have is taken from them alone.
  Table table() const;

 private:
  struct Lineage {
    Table table;
    int64_t last = -1;
  };
  Lineage log_, json_;
};

/// `paths` as read_run_figures() takes them; not_found where they have no iterations.
Metrics::Table read_metrics(const FileSystem& files, const std::string& paths);

/// Names that occur in any iteration, sorted.
std::vector<std::string> metric_names(const Metrics::Table& table);

}  // namespace ferry::tool
