// One tensor of two checkpoints: what can be said without its values, then with them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/diff.h"
#include "ops/diff/pairing.h"

namespace ferry {

struct JudgeOptions {
  bool ignore_dtype = false;  // tensors of numbers of other dtypes are equal when their values are
  /// True size of the vocabulary, where it is known: only rows beyond it are padding, which one
  /// side may lack.
  std::optional<int64_t> vocabulary;
};

/// All but the values. Gives a constant of the pair the dtype and shape of its counterpart. Of a
/// vocabulary that is padded on one side the common rows are compared. Notes say so.
TensorDiff judge(TensorPair& pair, const JudgeOptions& options, std::vector<std::string>& notes);

}  // namespace ferry
