// The optimizer's fp32 masters as the model's weights.
#pragma once

#include "ckpt/checkpoint.h"

namespace ferry {

/// Exchanges every weight and its fp32 master in the catalog: the master then has the weight's name
/// and role. Weights without a master, as there are none of fp32 without distributed optimizer,
/// stay. invalid when there is no master, mismatch when masters are known to lie in the wrong
/// places.
void use_masters_as_weights(Checkpoint& checkpoint);

}  // namespace ferry
