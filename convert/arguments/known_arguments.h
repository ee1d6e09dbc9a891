// Which of Megatron-LM's arguments are known here.
#pragma once

#include <string>
#include <string_view>

#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// True for arguments of Megatron-LM's releases, and for those of forks that are read here.
bool is_known_argument(std::string_view name);

/// The arguments that a fork or a later release added and that are set to something:
/// "output_scale=2.0, new_norm=True"; empty when there are none. Nobody here can say whether
/// they change what the model computes.
std::string unknown_arguments(const Value& args);

}  // namespace ferry
