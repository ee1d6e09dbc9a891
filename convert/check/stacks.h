// The layers of a model of any kind, seen in the names of its tensors.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"

namespace ferry {

/// A tensor of a layer: "model.layers.3.mlp.experts.7.up_proj.weight" without its layer.
struct LayerTensor {
  const Entry* entry = nullptr;
  std::string suffix;   // with '*' for numbers: "mlp.experts.*.up_proj.weight"
  int64_t expert = -1;  // the number after "experts."; -1: none
};

struct Stack {
  std::string prefix;  // "model.layers"
  std::map<int64_t, std::vector<LayerTensor>> layers;
  int64_t elements = 0;
};

/// By the first number of each name; names without one are left out.
std::vector<Stack> stacks_of(const Catalog& catalog);

/// Tensors whose dtype is not that of the same tensor in all other layers, and 16-bit floats of the
/// kind that the rest of the model is not. One sentence each.
std::vector<std::string> odd_dtypes(const Catalog& catalog);

/// Layers that lack a tensor that all others of their kind have, or have it in another shape, and
/// experts of which some are missing. `kinds` names the kind of each layer; empty: not known.
std::vector<std::string> layer_problems(const Stack& stack, const std::vector<std::string>& kinds,
                                        int64_t experts);

}  // namespace ferry
