// The layers of a model of any kind, seen in the names of its tensors.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/core/catalog.h"
#include "convert/check/findings.h"

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
/// kind that the rest of the model is not: warnings.
void find_odd_dtypes(const Catalog& catalog, Findings& findings);

/// Adds layers that lack a tensor that all others of their kind have, or have it in another shape.
/// `kinds` names the kind of each layer; empty: not known. That the first layer has less is a
/// warning: in some models it has nothing to add to or to normalise. Nothing is said of what it
/// lacks in every model of its type: tensors whose names, after the layer's number, begin with
/// `not_in_the_first`, unless that is empty.
void compare_with_each_other(const Stack& stack, const std::vector<std::string>& kinds,
                             std::string_view not_in_the_first, Findings& findings);

/// Adds layers in which experts are missing, or are more than `most`. `experts` is how many there
/// must be; 0: as many as the highest number says.
void compare_experts(const Stack& stack, int64_t experts, int64_t most, Findings& findings);

}  // namespace ferry
