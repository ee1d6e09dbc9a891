#include "tools/report/training/series.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ferry::tool {
namespace {

// Shares, so that the mean of the largest numbers is a number.
void join_points(SeriesPoint& into, const SeriesPoint& next) {
  const double share =
      static_cast<double>(next.count) / static_cast<double>(into.count + next.count);
  into.mean = into.mean * (1 - share) + next.mean * share;
  into.least = std::min(into.least, next.least);
  into.most = std::max(into.most, next.most);
  into.last = next.last;
  into.count += next.count;
}

}  // namespace

void Series::add(int64_t iteration, double value) {
  if (!std::isfinite(value)) {
    if (not_finite_++ == 0) first_not_finite_ = iteration;
    last_not_finite_ = iteration;
    value_not_finite_ = value;
    return;
  }
  value_not_finite_.reset();
  const SeriesPoint next{iteration, iteration, 1, value, value, value};
  if (!points_.empty() && points_.back().last == iteration && points_.back().count == 1) {
    points_.back() = next;
  } else if (!points_.empty() && points_.back().count < values_each_) {
    join_points(points_.back(), next);
  } else {
    if (points_.size() == kMostPoints) thin();
    points_.push_back(next);
  }
}

void Series::forget_from(int64_t iteration) {
  if (last_not_finite_ >= iteration) value_not_finite_.reset();
  while (!points_.empty() && points_.back().first >= iteration) points_.pop_back();
  if (!points_.empty()) points_.back().last = std::min(points_.back().last, iteration - 1);
}

void Series::thin() {
  for (size_t i = 0; i < kMostPoints / 2; ++i) {
    points_[i] = points_[2 * i];
    join_points(points_[i], points_[2 * i + 1]);
  }
  points_.resize(kMostPoints / 2);
  values_each_ *= 2;
}

double Series::latest() const {
  if (value_not_finite_) return *value_not_finite_;
  return points_.empty() ? std::numeric_limits<double>::quiet_NaN() : last();
}

double Series::least() const {
  return std::min_element(points_.begin(), points_.end(),
                          [](const auto& a, const auto& b) { return a.least < b.least; })
      ->least;
}

double Series::most() const {
  return std::max_element(points_.begin(), points_.end(),
                          [](const auto& a, const auto& b) { return a.most < b.most; })
      ->most;
}

int64_t Series::iteration_of_least() const {
  return std::min_element(points_.begin(), points_.end(),
                          [](const auto& a, const auto& b) { return a.least < b.least; })
      ->first;
}

double Series::median() const {
  std::vector<double> means;
  for (const SeriesPoint& point : points_) means.push_back(point.mean);
  const auto middle = means.begin() + static_cast<ptrdiff_t>(means.size() / 2);
  std::nth_element(means.begin(), middle, means.end());
  return *middle;
}

}  // namespace ferry::tool
