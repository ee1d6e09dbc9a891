// Cutting a run's state up: tensors left out, renamed or cast.
//
// Optimizer state goes with its tensor: what is said of "output_layer.weight" is said of
// "optimizer.state.exp_avg.output_layer.weight", too.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "ckpt/base/dtype.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// The model tensor that "optimizer.state.<kind>.<name>" belongs to; `name` itself when it is none.
std::string_view model_name(std::string_view name);

/// Leaves out every tensor that `is_kept` says no to, asked with the tensor's own name and, of
/// optimizer state, also with its model tensor's: one yes is enough.
void keep_tensors(RunState& state, const std::function<bool(std::string_view)>& is_kept);

/// Likewise, those that `is_unwanted` says yes to, asked with either name.
void drop_tensors(RunState& state, const std::function<bool(std::string_view)>& is_unwanted);

bool has_optimizer(const RunState& state);
void drop_optimizer(RunState& state);

/// `rename` gives a tensor's new name, or the old one. invalid when two tensors get one name.
void rename_tensors(RunState& state, const std::function<std::string(std::string_view)>& rename);

/// Floating-point tensors of the model; what is not a parameter (a router's bias) and the
/// optimizer's state stay as they are. The arguments, where there are any, say the new type. Warns
/// that fp16 cannot hold all numbers of wider types.
void cast_model(RunState& state, DType dtype);

}  // namespace ferry
