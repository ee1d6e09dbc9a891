// The optimizer's fp32 masters and the model's weights.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ckpt/checkpoint.h"

namespace ferry {

/// Positions in a catalog's entries: an optimizer's copy of a parameter, and the model's tensor of
/// its name.
struct StoredMaster {
  uint32_t master = 0;
  std::optional<uint32_t> weight;  // of any dtype and shape
};
std::vector<StoredMaster> stored_masters(const Catalog& catalog);

/// Exchanges every weight and its fp32 master weight in the catalog, name and role. Weights without
/// one, as fp32 weights have none without distributed optimizer, stay. invalid when there is no
/// master weight, mismatch when they are known to be in the wrong places.
void use_masters_as_weights(Checkpoint& checkpoint);

}  // namespace ferry
