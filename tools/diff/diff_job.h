// What `ferry diff` does: open both, pair their tensors, compare the values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/engine/engine.h"
#include "ckpt/open.h"
#include "tools/diff/object_diff.h"
#include "tools/diff/tensor_diff.h"

namespace ferry::tool {

/// Tensors in the order of A, with those of B alone behind; or the largest difference first,
/// tensors of another shape and those on one side alone before all; or the largest tensors first.
enum class DiffOrder { catalog, difference, size };

struct DiffOptions {
  std::string a, b;
  OpenOptions open_a, open_b;
  Tolerance tolerance;
  bool ignore_dtype = false;            // where values are numbers
  std::vector<std::string> only, drop;  // names of tensors to compare (none: all), and not to
  bool objects = true;
  DiffOrder order = DiffOrder::catalog;
  EngineOptions engine;  // progress counts bytes of A
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

/// Errors as open_checkpoint and plan_export; not_found when a pattern matches no tensor, or none
/// is left; busy when a checkpoint was replaced meanwhile.
DiffReport diff(const DiffOptions& options);

/// Lists the first few tensors that differ.
std::string to_text(const DiffReport& report, double seconds);
/// Lists all that differ.
nlohmann::json to_json(const DiffReport& report, double seconds);

}  // namespace ferry::tool
