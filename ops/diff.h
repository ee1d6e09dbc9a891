// Compares two checkpoints of any formats and layouts, tensor by tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"

namespace ferry {

/// How far apart equal values may be. With neither, elements of one type must have the same bits.
struct Tolerance {
  std::optional<double> absolute = {};  // of |a - b|
  std::optional<double> relative = {};  // of |a - b| / max(|a|, |b|)

  bool none() const { return !absolute && !relative; }
};

struct ValueDifference {
  int64_t compared = 0;   // elements
  int64_t differing = 0;  // of these
  int64_t without =
      0;  // differing ones whose difference is not a number: NaN or infinity on a side
  double max_absolute = 0;
  double max_relative = 0;  // |a - b| / max(|a|, |b|)
  int64_t first = -1;       // position of the first differing element, in row-major order
  long double first_a = 0, first_b = 0;  // which hold every value of 64-bit integers
  bool has_values = true;                // false: of types that are compared by their bytes alone

  void join(const ValueDifference& other);
};

/// Tensors in the order of A, then those in B alone; or the largest difference first, after tensors
/// that differ in shape or are on one side alone; or the largest tensors first.
enum class DiffOrder { catalog, difference, size };

struct DiffOptions {
  std::string a = {}, b = {};
  OpenOptions open_a = {}, open_b = {};
  Tolerance tolerance = {};
  bool ignore_dtype = false;  // where values are numbers
  std::vector<std::string> only = {},
                           drop = {};  // names of tensors to compare (none: all), and not to
  bool objects = true;
  DiffOrder order = DiffOrder::catalog;
  EngineOptions engine = {};  // progress counts bytes of A
};

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

/// What two checkpoints store besides tensors: where arguments, scheduler and so on differ.
struct ObjectsDiff {
  struct Changed {
    std::string name;
    std::vector<std::string> changes;  // "args.lr: 0.1 / 0.2"; the first few
    int64_t more = 0;                  // changes that are not listed
  };

  int64_t equal = 0;
  std::vector<Changed> changed;
  std::vector<std::string> only_in_a, only_in_b;
  std::vector<std::string> problems;  // what could not be read, and why
};

struct DiffSide {
  std::string path, format;
  std::optional<int64_t> iteration;
};

struct DiffReport {
  DiffSide a, b;
  std::vector<TensorDiff> tensors;  // all that were asked for, equal ones included
  std::optional<ObjectsDiff> objects;
  std::vector<std::string> notes;
  uint64_t bytes = 0;  // of A that were compared

  int64_t count(TensorStatus status) const;
  bool equal() const;  // all tensors are; objects do not matter
};

/// Errors as open_checkpoint(), and as convert() where the two have different names; not_found when
/// a pattern matches no tensor, or none is left; busy when a checkpoint was replaced meanwhile.
DiffReport diff(const DiffOptions& options);

}  // namespace ferry
