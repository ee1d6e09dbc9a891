// A Hugging Face folder held against the model that it was made from: fine-tuned, quantised, or
// converted and back.
#pragma once

#include "ckpt/checkpoint.h"
#include "convert/check/findings.h"

namespace ferry {

/// Compares names and shapes (of quantised weights those of their values), members of config.json
/// that say what the model computes, and the files next to the weights. Both with the names of
/// their tensors unwrapped. Reads no tensor.
void check_against_original(const Checkpoint& checkpoint, const Checkpoint& original,
                            Findings& findings);

}  // namespace ferry
