// Tensors that are alike but for numbers in their names, or states of the optimizer: the same
// shape, stored in the same pieces in the same files. Thousands of chunks are some dozen kinds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"

namespace ferry::tool {

struct TensorKind {
  std::string name;  // "decoder.layers.*.mlp.linear_fc1.weight", of states that of the parameter
  std::vector<std::string> states;  // of the optimizer: "exp_avg"; none: the model's own
  /// What the first '*' stands for: "0-7, 9"; empty without one.
  std::string numbers;
  int64_t tensors = 0;
  uint64_t bytes = 0;              // of all of them
  const Entry* example = nullptr;  // the first of them
};

/// By falling size. Refers to the catalog's entries.
std::vector<TensorKind> tensor_kinds(const Catalog& catalog);

/// "0-7, 9" of {0, ..., 7, 9}, in at most some hundred characters.
std::string ranges(std::vector<uint64_t> numbers);

/// What people call each of the catalog's files, short enough for a map: the rank of "__3_0.distcp"
/// where each rank has one, "1.0" of mp_rank_01_000, otherwise the position.
std::vector<std::string> file_labels(const Catalog& catalog);

}  // namespace ferry::tool
