// Names that the parameters of one model chunk of a rank have in the state dict of its modules, as
// today's Megatron-LM builds them: what names.h reads.
//
// Source: megatron/core/models/gpt/{gpt_model,gpt_layer_specs}.py,
// transformer/{transformer_layer,multi_token_prediction}.py, moe/experts.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/megatron/model/model_layout.h"

namespace ferry {

struct StateDictEntry {
  std::string name;
  /// Position among the chunk's parameters; -1: a linear module's extra state, which says nothing.
  int64_t parameter = -1;
};

/// In the order of the state dict. `parameters` are those of the chunk, in order of registration;
/// `first_expert` is the number of the rank's first one.
std::vector<StateDictEntry> state_dict_names(const ModelLayout& layout, const ModuleChoice& modules,
                                             const StageContents& stage, int64_t first_expert,
                                             const std::vector<LocalParameter>& parameters);

/// Shape of the local tensor.
Dims local_shape(const LocalParameter& parameter);

}  // namespace ferry
