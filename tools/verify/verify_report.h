// What `ferry verify` says.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ckpt/integrity/verify.h"

namespace ferry::tool {

struct TimedReport {
  VerifyReport report;
  double seconds = 0;
};

/// Of all iterations of a run.
struct RunReport {
  std::string path;
  std::string problem;             // of the tracker; empty: none
  std::vector<std::string> notes;  // iterations that were not checked
  std::vector<TimedReport> iterations;
};
size_t problem_count(const RunReport& run);

/// One line for each problem, up to 20, then what was checked, at which rate, and what could not
/// be.
std::string to_text(const TimedReport& timed);
std::string to_text(const RunReport& run);

nlohmann::json to_json(const TimedReport& timed);
nlohmann::json to_json(const RunReport& run);

}  // namespace ferry::tool
