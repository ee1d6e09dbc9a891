#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/report/training/training_page.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

json series_json(const Series& series) {
  json iterations = json::array(), values = json::array();
  for (const SeriesPoint& point : series.points()) {
    iterations.push_back(point.last);
    values.push_back(point.mean);
  }
  json result = {{"iterations", iterations},
                 {"values", values},
                 {"exact", series.is_exact()},
                 {"not_finite", series.not_finite()}};
  if (series.not_finite() > 0) result["first_not_finite"] = series.first_not_finite();
  const bool is_last_finite = std::isfinite(series.latest());  // JSON has no NaN
  result["last"] = is_last_finite ? json(series.latest()) : json(nullptr);
  if (series.points().empty()) return result;
  result["least"] = series.least();
  result["least_at"] = series.iteration_of_least();
  result["most"] = series.most();
  result["median"] = series.median();
  return result;
}

json or_null(const std::string& when) { return when.empty() ? json(nullptr) : json(when); }

json run_json(const RunFigures& run) {
  json series = json::object(), saves = json::array(), restarts = json::array();
  for (const auto& [name, one] : run.series) series[name] = series_json(one);
  for (const auto& [iteration, when] : run.saves) {
    saves.push_back(
        {{"iteration", iteration},
         {"time", or_null(when)},
         {"on_disk", std::binary_search(run.on_disk.begin(), run.on_disk.end(), iteration)}});
  }
  for (const Restart& restart : run.restarts) {
    restarts.push_back(
        {{"iteration", restart.iteration},
         {"replaced_until", restart.replaced_until > 0 ? json(restart.replaced_until) : nullptr},
         {"time", or_null(restart.when)}});
  }
  return {{"name", run.name},
          {"sources", run.sources},
          {"first_iteration", run.first},
          {"last_iteration", run.last},
          {"planned_iterations", run.planned > 0 ? json(run.planned) : json(nullptr)},
          {"series", series},
          {"saves", saves},
          {"restarts", restarts},
          {"exits", run.exits},
          {"lines", run.lines},
          {"lines_used", run.lines_used},
          {"notes", run.notes}};
}

}  // namespace

json training_json(const std::vector<RunFigures>& runs) {
  json all = json::array();
  for (const RunFigures& run : runs) all.push_back(run_json(run));
  return {{"runs", all}};
}

}  // namespace ferry::tool
