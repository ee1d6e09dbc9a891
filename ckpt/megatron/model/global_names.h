// From the name of one layer's, one expert's tensor to that of the tensor that holds them all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// "decoder.layers.7.mlp.experts.experts.3.linear_fc1.weight" as the tensor that holds all experts
/// and, where layers are stacked, all layers.
struct GlobalName {
  std::string name;
  bool layer_axis = false, expert_axis = false;
  int64_t layer = -1;  // of the decoder; -1: not of a layer
  int64_t expert = -1;
};

GlobalName global_name(std::string_view local, bool stacked);

/// Whether every layer of the decoder has parameters of the same names; where not, they are no one
/// tensor. `names` number layers and experts.
bool layers_are_alike(const std::vector<std::string>& names);

}  // namespace ferry
