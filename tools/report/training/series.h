// A figure over the iterations of a run, in bounded memory however long the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ferry::tool {

/// Consecutive values, merged.
struct SeriesPoint {
  int64_t first = 0, last = 0;  // iterations
  int64_t count = 0;
  double mean = 0, least = 0, most = 0;
};

/// Rising iterations with their values. Where there are too many, neighbours share a point.
class Series {
 public:
  static constexpr size_t kMostPoints = 16384;

  /// `iteration` is not below the last one; the same one again replaces its value where it still
  /// has a point of its own. A value that is not finite makes no point, and is counted.
  void add(int64_t iteration, double value);
  /// Drops the values of `iteration` and later. A point that it falls into keeps its mean.
  void forget_from(int64_t iteration);

  const std::vector<SeriesPoint>& points() const noexcept { return points_; }
  int64_t not_finite() const noexcept { return not_finite_; }
  int64_t first_not_finite() const noexcept { return first_not_finite_; }  // iteration
  /// Each point is a value of its own.
  bool is_exact() const noexcept { return values_each_ == 1; }
  /// The value of the last iteration, finite or not; NaN where there is none. The same as last()
  /// where that iteration shares a point, or where later values were dropped.
  double latest() const;
  double last() const { return points_.back().mean; }  // as of all below: there is a point
  double least() const;
  double most() const;
  int64_t iteration_of_least() const;
  double median() const;

 private:
  void thin();

  std::vector<SeriesPoint> points_;
  int64_t values_each_ = 1;  // of a point that is full
  int64_t not_finite_ = 0, first_not_finite_ = 0;
  int64_t last_not_finite_ = 0;             // iteration, where there is a value
  std::optional<double> value_not_finite_;  // of the last iteration, after all points
};

}  // namespace ferry::tool
