// Values without what only one program can unpickle.
#pragma once

#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// A copy that holds Python's and PyTorch's own types only: dicts, lists, numbers, texts, tensors,
/// dtypes, sizes and argparse.Namespace. An instance with one constructor argument (a member of an
/// enum, a path) becomes that argument, any other instance, class or function its name; what is
/// nested deeper than 64 levels becomes None. exhausted past four million values.
LoadedValue plain_value(const Value& value);

}  // namespace ferry
