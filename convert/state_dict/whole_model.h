// Whether what was found in a state dict is all of the model that config.json describes.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "convert/config_json.h"
#include "convert/state_dict/state_dict.h"

namespace ferry {

/// Proves that `result` has the tensors of the model, which transformers calls `expected`, in their
/// shapes, and takes away what else it has, with a warning. mismatch, naming them, where tensors
/// are missing, left over or misshapen; missing ones are not a fault where `options` say what model
/// fills them up.
void require_model(const ReadConfig& config, const std::unordered_set<std::string>& expected,
                   const StateDictOptions& options, StateDict& result);

}  // namespace ferry
