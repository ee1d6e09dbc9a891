// Whether numbers that are stored less 1 can be stored whole, or the other way round, as they are.
#pragma once

#include <cstdint>

#include "ckpt/core/catalog.h"

namespace ferry {

/// How many elements of an entry of the catalog, which are read, `dtype` does not hold exactly once
/// `addend` is added. All of them where the entry is larger than a norm is.
int64_t rounded_sums(const Catalog& catalog, const Entry& entry, double addend, DType dtype);

}  // namespace ferry
