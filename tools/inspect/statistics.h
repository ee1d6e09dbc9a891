// What the values of a tensor look like, computed streaming.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ckpt/core/catalog.h"

namespace ferry::tool {

/// Of the finite values; all in double.
struct Statistics {
  double min = 0, max = 0, mean = 0;
  double std = 0;  // of the population
  int64_t finite = 0, nan = 0, infinite = 0;
  std::string problem;  // why there are none ("complex values"); empty: there are
};

/// Reads the tensor once, in at most `memory_bytes`; tells `read` how many bytes each step took.
Statistics statistics(const Catalog& catalog, const Entry& entry, uint64_t memory_bytes,
                      const std::function<void(uint64_t)>& read = {});

/// Calls consume(values, count) with all elements of a tensor that statistics() has values of, as
/// double, some thousand at once, in no particular order. Otherwise as statistics().
void for_each_block(const Catalog& catalog, const Entry& entry, uint64_t memory_bytes,
                    const std::function<void(const double*, int64_t)>& consume,
                    const std::function<void(uint64_t)>& read = {});

}  // namespace ferry::tool
