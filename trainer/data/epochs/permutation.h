// Orders of any length that take no memory.
#pragma once

#include <cstdint>

namespace ferry {

/// Where element `i` of [0, n) goes: a bijection of [0, n) for each seed, by mixing the bits of i
/// until the result is below n. invalid for n below 2 or above 2^32, i outside, or a negative seed.
///
/// Source: Kensler, "Correlated multi-jittered sampling" (2013); bionemo-core data/permute.py.
int64_t permute(int64_t i, int64_t n, int64_t seed);

}  // namespace ferry
