// How the values of a tensor are distributed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/inspect/statistics.h"

namespace ferry::tool {

struct Histogram {
  Statistics values;
  double low = 0, high = 0;   // what the bins span: min to max, but for single values far away
  std::vector<int64_t> bins;  // of equal width; empty when there is nothing to count
  int64_t below = 0, above = 0;
};

/// Reads the tensor twice, each time as statistics(); four times where nearly all values share a
/// bin, as they do where one is far away from the others. `read` counts the first two.
Histogram histogram(const Catalog& catalog, const Entry& entry, int bins, uint64_t memory_bytes,
                    const std::function<void(uint64_t)>& read = {});

}  // namespace ferry::tool
