// Whether a Hugging Face folder holds the model that its config.json describes.
#pragma once

#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/summary.h"

namespace ferry {

/// What is wrong with the tensors of `checkpoint` (Format::hugging_face, names unwrapped; nothing
/// of others), one sentence each, of several lines where names are listed. A model of a known
/// family must have exactly its tensors, with the shapes that config.json gives. Another model is
/// compared with what its config.json says in the words that most models use (layers, experts,
/// sizes), and its layers with each other. Reads no tensor.
ModelCheck check_model(const Checkpoint& checkpoint);

/// Refuses a Hugging Face folder whose index and shards disagree (Checkpoint::damage): mismatch,
/// which also says whether the shards alone hold a whole model.
void require_index(const Checkpoint& checkpoint);

}  // namespace ferry
