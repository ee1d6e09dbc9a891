// The layers of a model of any kind, seen in the names of its tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/core/catalog.h"
#include "convert/check/findings.h"

namespace ferry {

inline constexpr std::string_view kExpertsModule = "experts.";

/// A tensor of a layer: "model.layers.3.mlp.experts.7.up_proj.weight" without its layer.
struct LayerTensor {
  const Entry* entry = nullptr;
  std::string suffix;   // with '*' for an expert's number: "mlp.experts.*.up_proj.weight"
  int64_t expert = -1;  // the number after "experts."; -1: none
};

struct Stack {
  std::string prefix;  // "model.layers"
  std::map<int64_t, std::vector<LayerTensor>> layers;
  int64_t elements = 0;
};

/// By the first number of each name; names without one are left out.
std::vector<Stack> stacks_of(const Catalog& catalog);

/// Adds layers in which experts are missing, or are more than `most`. `experts` is how many there
/// must be; 0: as many as the highest number says.
void compare_experts(const Stack& stack, int64_t experts, int64_t most, Findings& findings);

}  // namespace ferry
