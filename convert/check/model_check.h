// Whether a Hugging Face folder holds the model that its config.json describes.
#pragma once

#include <optional>

#include "ckpt/checkpoint.h"
#include "ckpt/summary.h"
#include "convert/check/findings.h"
#include "convert/check/known_model.h"
#include "convert/model/mismatch.h"

namespace ferry {

struct ModelExamination {
  Findings findings;                // but for those of the misfit
  std::optional<KnownModel> model;  // nothing where config.json is of no known family
  Misfit misfit;                    // of a known model's tensors
};

/// What is wrong with the tensors of `checkpoint` (Format::hugging_face, names unwrapped; nothing
/// of others). A model of a known family must have exactly its tensors, with the shapes that
/// config.json gives. Another model is compared with what its config.json says in the words that
/// most models use (layers, experts, sizes), and its layers with each other. Reads no tensor.
ModelExamination examine_model(const Checkpoint& checkpoint);

/// The same in sentences, of several lines where names are listed.
ModelCheck check_model(const Checkpoint& checkpoint);

/// Refuses a Hugging Face folder whose index and shards disagree (Checkpoint::damage): mismatch,
/// which also says whether the shards alone hold a whole model.
void require_index(const Checkpoint& checkpoint);

}  // namespace ferry
