// transformers' names of activations.
#pragma once

#include <string_view>

#include "ckpt/megatron/model/architecture.h"

namespace ferry {

/// `other` for a name that is not known.
Activation activation_of(std::string_view name);

/// Where several names stand for the same activation, the usual one.
std::string_view name_of(Activation activation);

/// For messages: "SwiGLU".
std::string_view in_words(Activation activation);

}  // namespace ferry
