#include "tools/report/histogram.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ferry::tool {
namespace {

constexpr double kPartOfOneBin = 0.9;   // from which on the others say nothing
constexpr double kPartFarAway = 0.005;  // of the values, on either side
constexpr int kLeastExponent = -1074, kMostExponent = 1024;

// Counts by sign and power of two: the range of nearly all values, whatever the others are.
class Magnitudes {
 public:
  void add(const double* block, int64_t size) {
    for (int64_t i = 0; i < size; ++i) {
      if (std::isfinite(block[i])) ++counts_[place_of(block[i])];
    }
  }

  std::pair<double, double> usual_range(const Statistics& values) const {
    const auto most_left_out = std::max<int64_t>(
        1, static_cast<int64_t>(kPartFarAway * static_cast<double>(values.finite)));
    const auto first = first_of_more(counts_.begin(), counts_.end(), most_left_out);
    const auto last = first_of_more(counts_.rbegin(), counts_.rend(), most_left_out);
    const auto lowest = static_cast<size_t>(first - counts_.begin());
    const auto highest = counts_.size() - 1 - static_cast<size_t>(last - counts_.rbegin());
    return {std::max(values.min, edge_of(lowest, false)),
            std::min(values.max, edge_of(highest, true))};
  }

 private:
  static constexpr size_t kPowers = kMostExponent - kLeastExponent + 1;

  // Negative powers from the largest on, zero, positive powers.
  static size_t place_of(double value) {
    if (value == 0) return kPowers;
    int exponent = 0;
    std::frexp(value, &exponent);
    const auto power = static_cast<size_t>(std::max(exponent, kLeastExponent) - kLeastExponent);
    return value < 0 ? kPowers - 1 - power : kPowers + 1 + power;
  }
  // The edge of a place's values; 2^1024 is infinite, and no edge then.
  static double edge_of(size_t place, bool is_upper) {
    if (place == kPowers) return 0;
    const bool is_negative = place < kPowers;
    const auto power = static_cast<int>(is_negative ? kPowers - 1 - place : place - kPowers - 1);
    const int exponent = power + kLeastExponent - (is_negative == is_upper ? 1 : 0);
    const double edge = std::ldexp(1.0, exponent);
    return is_negative ? -edge : edge;
  }
  template <typename Iterator>
  static Iterator first_of_more(Iterator begin, Iterator end, int64_t left_out) {
    int64_t seen = 0;
    return std::find_if(begin, end, [&](int64_t count) { return (seen += count) > left_out; });
  }

  std::vector<int64_t> counts_ = std::vector<int64_t>(2 * kPowers + 1);
};

void add(const double* block, int64_t size, Histogram& histogram) {
  // Halves, so that the width of a range from -1e308 to 1e308 is a number.
  const double width = histogram.high / 2 - histogram.low / 2;
  const double last = static_cast<double>(histogram.bins.size() - 1);
  for (int64_t i = 0; i < size; ++i) {
    const double value = block[i];
    if (!std::isfinite(value)) continue;
    if (value < histogram.low) {
      ++histogram.below;
    } else if (value > histogram.high) {
      ++histogram.above;
    } else {
      const double part = width > 0 ? (value / 2 - histogram.low / 2) / width : 0;
      const double bin = part * static_cast<double>(histogram.bins.size());
      ++histogram.bins[static_cast<size_t>(std::clamp(bin, 0.0, last))];
    }
  }
}

}  // namespace

Histogram histogram(const Catalog& catalog, const Entry& entry, int bins, uint64_t memory_bytes,
                    const std::function<void(uint64_t)>& read) {
  Histogram result;
  result.values = statistics(catalog, entry, memory_bytes, read);
  const Statistics& values = result.values;
  if (!values.problem.empty() || values.finite == 0) return result;
  const auto fill = [&](double low, double high, const std::function<void(uint64_t)>& watch) {
    result.low = low;
    result.high = high;
    result.bins.assign(high > low ? static_cast<size_t>(bins) : 1, 0);
    result.below = result.above = 0;
    const auto count = [&](const double* block, int64_t size) { add(block, size, result); };
    for_each_block(catalog, entry, memory_bytes, count, watch);
  };
  fill(values.min, values.max, read);
  const int64_t fullest = *std::max_element(result.bins.begin(), result.bins.end());
  const double part = static_cast<double>(fullest) / static_cast<double>(values.finite);
  if (result.bins.size() == 1 || part < kPartOfOneBin) return result;
  const auto no_count = [&](uint64_t) {
    if (read) read(0);  // which may throw
  };
  Magnitudes magnitudes;
  const auto count = [&](const double* block, int64_t size) { magnitudes.add(block, size); };
  for_each_block(catalog, entry, memory_bytes, count, no_count);
  const auto [low, high] = magnitudes.usual_range(values);
  if (low < high && (low > values.min || high < values.max)) fill(low, high, no_count);
  return result;
}

}  // namespace ferry::tool
