#include <algorithm>
#include <cmath>
#include <optional>

#include "tools/report/training/chart.h"

namespace ferry::tool {
namespace {

constexpr double kSpreadForLog = 100;  // from which on powers of ten are easier to read
constexpr double kWholeForLines = 1e15;
constexpr double kUsualPart = 0.95;  // of the values
constexpr double kFarAway = 3;       // spreads of the usual values
constexpr double kFarFromOne = 9;    // times the one value that all others have

// The values of a line's points within the chart, through `scale`.
struct CountedValues {
  std::vector<double> means;  // sorted
  double least = INFINITY, most = -INFINITY;
};

CountedValues values_of(const ChartLine& line, const IterationWindow& window,
                        double (*scale)(double)) {
  CountedValues values;
  for (const SeriesPoint& point : line.series->points()) {
    if (point.last < window.first || point.first > window.last) continue;
    values.means.push_back(scale(point.mean));
    values.least = std::min(values.least, scale(point.least));
    values.most = std::max(values.most, scale(point.most));
  }
  std::sort(values.means.begin(), values.means.end());
  return values;
}

// The largest value that is not far away from nearly all others: one that diverged, or a
// first iteration that took a hundred times as long, would press all others into one line.
double usual_most(const std::vector<double>& sorted, double most) {
  if (sorted.size() < 3) return most;
  const size_t last = sorted.size() - 1;
  const auto at = [&](double part) {
    return sorted[std::min(static_cast<size_t>(part * static_cast<double>(last)), last - 1)];
  };
  const double high = at(kUsualPart), spread = high - at(1 - kUsualPart);
  const double far = high + (spread > 0 ? kFarAway * spread : kFarFromOne * std::abs(high));
  if (!std::isfinite(far) || most <= far) return most;
  return *std::prev(std::upper_bound(sorted.begin(), sorted.end(), far));
}

double usual_least(const std::vector<double>& sorted, double least) {
  std::vector<double> negated(sorted.rbegin(), sorted.rend());
  for (double& value : negated) value = -value;
  return -usual_most(negated, -least);
}

// Each line has a range of its own, so that a short one that is elsewhere is seen, too.
ValueRange range_of(const std::vector<ChartLine>& lines, const IterationWindow& window,
                    double (*scale)(double)) {
  ValueRange range{INFINITY, -INFINITY};
  double least = INFINITY, most = -INFINITY;
  for (const ChartLine& line : lines) {
    const CountedValues values = values_of(line, window, scale);
    if (values.means.empty()) continue;
    range.low = std::min(range.low, usual_least(values.means, values.least));
    range.high = std::max(range.high, usual_most(values.means, values.most));
    least = std::min(least, values.least);
    most = std::max(most, values.most);
  }
  range.is_cut_below = least < range.low;
  range.is_cut = most > range.high;
  return range;
}

double as_it_is(double value) { return value; }

}  // namespace

ValueRange value_range(const std::vector<ChartLine>& lines, bool is_linear,
                       const IterationWindow& window) {
  ValueRange range = range_of(lines, window, as_it_is);
  if (range.low > range.high) return {};
  if (!is_linear && range.low > 0 && range.high / range.low >= kSpreadForLog) {
    const ValueRange powers = range_of(lines, window, std::log10);
    // Else some values are not above 0, or all that are usual are one.
    if (std::isfinite(powers.low) && powers.low < powers.high) {
      return {std::pow(10, powers.low), std::pow(10, powers.high), true, powers.is_cut,
              powers.is_cut_below};
    }
  }
  if (range.low == range.high) {
    const double around = range.low == 0 ? 1 : std::abs(range.low) / 10;
    range.low -= around;
    range.high += around;
  }
  return range;
}

std::vector<double> ticks(const ValueRange& range, int count) {
  std::vector<double> result;
  if (range.is_log) {
    const double first = std::ceil(std::log10(range.low) - 1e-9);
    const double last = std::floor(std::log10(range.high) + 1e-9);
    const double step = std::max(1.0, std::ceil((last - first) / count));
    for (double power = first; power <= last; power += step) result.push_back(std::pow(10, power));
    return result;
  }
  const double width = range.high / count - range.low / count;
  if (!(width > 0) || !std::isfinite(width)) return {range.low};
  double step = std::pow(10, std::floor(std::log10(width)));
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (step * 1.001 < width) step = std::pow(10, std::floor(std::log10(width))) * factor;
  }
  const double first = std::ceil(range.low / step);
  // Beyond this, whole numbers next to each other are the same.
  if (!std::isfinite(first) || std::abs(first) > kWholeForLines) return {range.low, range.high};
  for (int i = 0; i <= 2 * count && (first + i) * step <= range.high + step * 1e-9; ++i) {
    result.push_back((first + i) * step);
  }
  return result;
}

}  // namespace ferry::tool
