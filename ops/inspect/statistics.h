// What the values of a tensor look like, computed streaming.
#pragma once

#include <cstdint>
#include <functional>

#include "ops/inspect.h"

namespace ferry {

/// Reads the tensor once, in at most `memory_bytes`; calls `read` with the bytes of each step.
Statistics statistics(const Catalog& catalog, const Entry& entry, uint64_t memory_bytes,
                      const std::function<void(uint64_t)>& read = {});

/// Calls consume(values, count) with all elements of a tensor that statistics() has values of, as
/// double, some thousand at once, in no particular order. Otherwise as statistics().
void for_each_block(const Catalog& catalog, const Entry& entry, uint64_t memory_bytes,
                    const std::function<void(const double*, int64_t)>& consume,
                    const std::function<void(uint64_t)>& read = {});

}  // namespace ferry
