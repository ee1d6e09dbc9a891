// How the values of a tensor are distributed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tools/inspect/statistics.h"

namespace ferry::tool {

struct Histogram {
  Statistics values;
  std::vector<int64_t>
      bins;  // of equal width from min to max; empty when there is nothing to count
};

/// Reads the tensor twice, each time as statistics().
Histogram histogram(const Catalog& catalog, const Entry& entry, int bins, uint64_t memory_bytes,
                    const std::function<void(uint64_t)>& read = {});

}  // namespace ferry::tool
