// Compares runs: from which iteration their losses differ.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry::tool {

struct ComparedRun {
  std::string name;
  int64_t iterations = 0, last = 0;
  std::optional<double> last_loss;
  std::optional<double> least_loss;    // of the finite ones
  std::optional<double> milliseconds;  // the median
  // Against the first run, of iterations that both have:
  int64_t common = 0;
  std::optional<int64_t> first_other;        // where a loss first is another number
  std::optional<double> largest_difference;  // of losses, of the finite ones
  std::optional<double> last_difference;
};

/// invalid for a `metric` that none of them has.
std::vector<ComparedRun> compare_runs(const FileSystem& files, const std::vector<std::string>& runs,
                                      const std::string& metric);
std::string comparison_text(const std::vector<ComparedRun>& runs, const std::string& metric);
nlohmann::json comparison_json(const std::vector<ComparedRun>& runs, const std::string& metric);

}  // namespace ferry::tool
