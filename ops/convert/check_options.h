// Options of convert() that exclude each other, or that a target has no use for.
#pragma once

#include "ops/convert.h"

namespace ferry {

/// invalid, naming the option, where one would have no effect or contradicts another.
void check_options(const ConvertOptions& options);

}  // namespace ferry
