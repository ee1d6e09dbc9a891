#include "tools/runs/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "ckpt/base/error.h"
#include "tools/runs/metrics.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using Curve = std::vector<std::pair<int64_t, double>>;

Curve curve_of(const Metrics::Table& table, const std::string& metric) {
  Curve curve;
  for (const auto& [iteration, values] : table) {
    const auto found = values.find(metric);
    if (found != values.end()) curve.emplace_back(iteration, found->second);
  }
  return curve;
}

bool is_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void compare(const Curve& first, const Curve& other, ComparedRun& run) {
  auto at = first.begin();
  for (const auto& [iteration, value] : other) {
    while (at != first.end() && at->first < iteration) ++at;
    if (at == first.end() || at->first != iteration) continue;
    ++run.common;
    const double difference = std::fabs(value - at->second);
    if (!is_same(value, at->second) && !run.first_other) run.first_other = iteration;
    run.last_difference = is_same(value, at->second) ? 0 : difference;
    const bool is_larger = !run.largest_difference || difference > *run.largest_difference;
    if (std::isfinite(difference) && is_larger) run.largest_difference = run.last_difference;
  }
}

std::optional<double> median(Curve curve) {
  if (curve.empty()) return std::nullopt;
  const auto middle = curve.begin() + static_cast<ptrdiff_t>(curve.size() / 2);
  std::nth_element(curve.begin(), middle, curve.end(),
                   [](const auto& a, const auto& b) { return a.second < b.second; });
  return middle->second;
}

[[noreturn]] void fail_unknown(const std::string& metric, const std::set<std::string>& names) {
  const std::vector<std::string> all(names.begin(), names.end());
  const std::string nearest = nearest_word(metric, all);
  fail(ErrorKind::invalid, "no run has the metric '{}'{}{}; there are {}", printable(metric),
       nearest.empty() ? "" : "; the nearest is ", printable(nearest),
       printable(fmt::to_string(fmt::join(all, ", "))));
}

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.6g}", *value) : "";
}

nlohmann::json number_or_null(const auto& value) {
  return value ? nlohmann::json(*value) : nullptr;
}

}  // namespace

std::vector<ComparedRun> compare_runs(const FileSystem& files, const std::vector<std::string>& runs,
                                      const std::string& metric) {
  std::vector<ComparedRun> all;
  Curve first;
  bool is_any = false;
  std::set<std::string> names;
  for (const std::string& paths : runs) {
    const Metrics::Table table = read_metrics(files, paths);
    for (const std::string& name : metric_names(table)) names.insert(name);
    const Curve curve = curve_of(table, metric);
    ComparedRun run;
    run.name = paths;
    run.iterations = static_cast<int64_t>(curve.size());
    is_any = is_any || !curve.empty();
    for (const auto& [iteration, value] : curve) {
      run.last = iteration;
      run.last_loss = value;
      if (std::isfinite(value) && (!run.least_loss || value < *run.least_loss)) {
        run.least_loss = value;
      }
    }
    run.milliseconds = median(curve_of(table, "milliseconds"));
    if (all.empty()) {
      first = curve;
    } else {
      compare(first, curve, run);
    }
    all.push_back(std::move(run));
  }
  if (!is_any) fail_unknown(metric, names);
  return all;
}

std::string comparison_text(const std::vector<ComparedRun>& runs, const std::string& metric) {
  std::vector<std::vector<std::string>> rows = {{"run", "iterations", "last", metric, "least", "ms",
                                                 "common", "first other", "largest difference",
                                                 "last difference"}};
  for (const ComparedRun& run : runs) {
    const bool is_first = &run == &runs.front();
    const std::string other = is_first          ? ""
                              : run.first_other ? grouped(*run.first_other)
                              : run.common > 0  ? "none"
                                                : "";
    rows.push_back({printable(run.name), grouped(run.iterations), grouped(run.last),
                    number(run.last_loss), number(run.least_loss), number(run.milliseconds),
                    is_first ? "" : grouped(run.common), other, number(run.largest_difference),
                    number(run.last_difference)});
  }
  return table(rows, {false, true, true, true, true, true, true, true, true, true}, "");
}

nlohmann::json comparison_json(const std::vector<ComparedRun>& runs, const std::string& metric) {
  nlohmann::json all = nlohmann::json::array();
  for (const ComparedRun& run : runs) {
    all.push_back({{"name", run.name},
                   {"iterations", run.iterations},
                   {"last_iteration", run.last},
                   {"last", number_or_null(run.last_loss)},
                   {"least", number_or_null(run.least_loss)},
                   {"milliseconds", number_or_null(run.milliseconds)},
                   {"common_iterations", run.common},
                   {"first_other_iteration", number_or_null(run.first_other)},
                   {"largest_difference", number_or_null(run.largest_difference)},
                   {"last_difference", number_or_null(run.last_difference)}});
  }
  return {{"metric", metric}, {"runs", all}};
}

}  // namespace ferry::tool
