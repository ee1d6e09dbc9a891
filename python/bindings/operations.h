// Options of operations that others take, too.
#pragma once

#include "ops/convert.h"
#include "python/bindings/keywords.h"

namespace ferry::python {

/// All of convert()'s.
Keywords<ConvertOptions> convert_keywords();

}  // namespace ferry::python
