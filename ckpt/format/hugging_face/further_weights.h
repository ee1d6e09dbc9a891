// Safetensors files next to the model's own weights: parts that were saved by themselves, and files
// that are not part of it.
//
// GLM, DeepSeek and Step keep their MTP layers in an mtp.safetensors that no index names, and so do
// programs that quantise models. The folder may hold the whole model once more: Mistral's own form
// (consolidated*.safetensors), another type, another save.
#pragma once

#include <string>
#include <vector>

#include "ckpt/format/hugging_face/hugging_face.h"

namespace ferry {

/// Those .safetensors files among `names` that may be the model's when no index names them: all but
/// hidden ones and, where that leaves any, other forms and adapters.
std::vector<std::string> unindexed_weights(const std::vector<std::string>& names);

/// Adds to `model`, whose own weights are open, the tensors of the other .safetensors files among
/// `names` (of `folder`) that it lacks. Left out are adapters, state of optimizers, and files that
/// hold the model again: under the same names, with its modules in another form, or under names
/// of another kind with the same shapes. A note says what became of each file; one that cannot be
/// read is damage.
void add_further_weights(const std::string& folder, const std::vector<std::string>& names,
                         HuggingFaceModel& model);

}  // namespace ferry
