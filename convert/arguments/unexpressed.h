// Arguments of Megatron-LM that change what a model computes, or how it is trained on, and that an
// Architecture has no member for.
#pragma once

#include "ckpt/format/pickle/values/value.h"
#include "convert/arguments/arguments.h"

namespace ferry {

/// Adds the problems and warnings that `args` give besides those of result.architecture.
void find_unexpressed(const Value& args, ReadArguments& result);

}  // namespace ferry
