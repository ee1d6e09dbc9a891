#include "tools/report/histogram.h"

#include <algorithm>
#include <cmath>

namespace ferry::tool {

Histogram histogram(const Catalog& catalog, const Entry& entry, int bins, uint64_t memory_bytes,
                    const std::function<void(uint64_t)>& read) {
  Histogram result;
  result.values = statistics(catalog, entry, memory_bytes, read);
  const Statistics& values = result.values;
  if (!values.problem.empty() || values.finite == 0) return result;
  result.bins.resize(values.max > values.min ? static_cast<size_t>(bins) : 1);
  // Halves, so that the width of a range from -1e308 to 1e308 is a number.
  const double width = values.max / 2 - values.min / 2;
  const double last = static_cast<double>(result.bins.size() - 1);
  const auto count = [&](const double* block, int64_t size) {
    for (int64_t i = 0; i < size; ++i) {
      if (!std::isfinite(block[i])) continue;
      const double part = width > 0 ? (block[i] / 2 - values.min / 2) / width : 0;
      const double bin = part * static_cast<double>(result.bins.size());
      ++result.bins[static_cast<size_t>(std::clamp(bin, 0.0, last))];
    }
  };
  for_each_block(catalog, entry, memory_bytes, count, read);
  return result;
}

}  // namespace ferry::tool
