// Which tensor of one side is which of the other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/diff/tensor_view.h"

namespace ferry {

struct TensorPair {
  std::optional<TensorView> a, b;  // one may be missing

  const TensorView& any() const { return a ? *a : *b; }
};

/// Pairs views of equal names, in the order of `a`, then what only `b` has. A stack
/// ("layers.mlp.w", first axis the layers) whose parts the other side names one by one
/// ("layers.0.mlp.w") is taken apart.
std::vector<TensorPair> pair_views(std::vector<TensorView> a, std::vector<TensorView> b);

/// The views of both checkpoints, with the names of Hugging Face where one side is Hugging Face,
/// the other Megatron, and no tensor has the same name in both; norms that the modules of the two
/// name differently have the names of `a`. A prefix that all names of one side have and none of the
/// other is left out, and experts that one side fuses are split. Says so in `notes`.
std::vector<TensorPair> pair_tensors(const Checkpoint& a, const Checkpoint& b,
                                     std::vector<std::string>& notes);

}  // namespace ferry
