// One tensor of two checkpoints: what can be said without its values, then with them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "tools/diff/compare.h"
#include "tools/diff/pairing.h"

namespace ferry::tool {

enum class TensorStatus { equal, values, dtype, shape, only_in_a, only_in_b };
std::string_view name(TensorStatus status) noexcept;

struct TensorDiff {
  std::string name;
  TensorStatus status = TensorStatus::equal;
  DType dtype_a = DType::f32, dtype_b = DType::f32;
  Dims shape_a, shape_b;
  Dims compared;           // the shape that both have, without padding rows of the vocabulary
  bool by_value = false;   // its values are compared: shapes agree, and dtypes or both are numbers
  ValueDifference values;  // of those
};

struct JudgeOptions {
  bool ignore_dtype = false;  // tensors of numbers of other dtypes are equal when their values are
  /// True size of the vocabulary, where it is known: only rows beyond it are padding, which one
  /// side may lack.
  std::optional<int64_t> vocabulary;
};

/// All but the values. Gives a constant of the pair the dtype and shape of its counterpart. Of a
/// vocabulary that is padded on one side the common rows are compared. Notes say so.
TensorDiff judge(TensorPair& pair, const JudgeOptions& options, std::vector<std::string>& notes);

}  // namespace ferry::tool
