// What a checkpoint says of delayed scaling in FP8: an object of the common state, which
// Megatron-LM does not look at.
//
//   "fp8_delayed_scaling": {"decoder.layers.0.mlp.linear_fc1":
//       {"input": {"scale": 12.5, "amax_history": [35.8, ...]}, "weight": ..., "gradient": ...},
//       ...}
//
// Linear layers have the names of their modules with the layer's number, whatever the layout: a run
// goes on at another one. Scales are what elements are multiplied by; histories begin with the last
// step's maximum.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ckpt/format/pickle/values/value.h"

namespace ferry {

constexpr const char* kFloat8Scaling = "fp8_delayed_scaling";

/// Of numbers as Float8State::numbers() has them, by the linears' names. None where nothing is
/// known.
LoadedValue write_float8_scaling(const std::vector<std::string>& names,
                                 std::span<const double> numbers);

/// Numbers of linears with so many of each tensor; zeros for those that are missing. corrupt for
/// numbers that no run has; `path` is for messages.
std::vector<double> read_float8_scaling(const Value& value, const std::vector<std::string>& names,
                                        int64_t numbers_of_tensor, const std::string& path);

}  // namespace ferry
