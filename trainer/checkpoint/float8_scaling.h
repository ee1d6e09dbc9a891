// The state of FP8 delayed scaling in a checkpoint: an object of the common state, which
// Megatron-LM ignores.
//
//   "fp8_delayed_scaling": {"decoder.layers.0.mlp.linear_fc1":
//       {"input": {"scale": 12.5, "amax_history": [35.8, ...]}, "weight": ..., "gradient": ...},
//       ...}
//
// Linear layers are named by module and layer number, independent of the layout, so a run can
// resume at another one. Elements are multiplied by scales; histories start with the last step's
// maximum.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ckpt/format/pickle/values/value.h"

namespace ferry {

constexpr const char* kFloat8Scaling = "fp8_delayed_scaling";

/// Makes the object from Float8State::numbers() of the linear layers `names`. None if nothing is
/// known.
LoadedValue write_float8_scaling(const std::vector<std::string>& names,
                                 std::span<const double> numbers);

/// The inverse: `numbers_of_tensor` numbers for each tensor of the linear layers, zeros where
/// missing. corrupt for impossible numbers; `path` is for messages.
std::vector<double> read_float8_scaling(const Value& value, const std::vector<std::string>& names,
                                        int64_t numbers_of_tensor, const std::string& path);

}  // namespace ferry
