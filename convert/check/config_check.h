// What a config.json says about a model, held against its tensors: type and class, floating-point
// type, tie of the output layer, parts for images and sounds, quantised weights.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ckpt/checkpoint.h"
#include "ckpt/summary.h"
#include "convert/check/findings.h"
#include "convert/check/known_model.h"

namespace ferry {

/// `checkpoint` with the names of its tensors unwrapped, `known` its model or null.
void check_config(const Checkpoint& checkpoint, const nlohmann::json& config,
                  const KnownModel* known, Loader loader, Findings& findings);

}  // namespace ferry
