// torchtitan's own names of the llama, qwen3 and deepseek_v3 shapes, and how its tensors become
// those of transformers: the experts of a layer are one tensor there, and queries and keys of llama
// have the two halves of a rotated pair side by side.
//
// Source: torchtitan/models/{llama3,qwen3,deepseek_v3}/state_dict_adapter.py.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/core/recipe.h"
#include "convert/config_json.h"

namespace ferry {

/// A tensor of transformers' that a stored one holds, or a part of it.
struct TitanTensor {
  std::string name;
  Dims shape;
  std::vector<Move> moves;  // from the stored tensor
};

class TitanNames {
 public:
  /// For the model's names in transformers; empty for other families.
  TitanNames(const ReadConfig& config, const std::unordered_set<std::string>& expected);

  /// All names that torchtitan, of any release, may have for its tensors.
  const std::unordered_set<std::string>& names() const noexcept { return names_; }

  /// What the tensor `name` (without prefix) of this shape holds; nothing when it is none of
  /// torchtitan's. mismatch when the shape cannot be that.
  std::vector<TitanTensor> tensors_of(const std::string& name, const Dims& shape) const;

 private:
  const ReadConfig& config_;
  const std::unordered_set<std::string>& expected_;
  std::unordered_set<std::string> names_;
};

}  // namespace ferry
