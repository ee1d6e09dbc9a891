// What decides in which of an optimizer's parameter groups a parameter is.
//
// Source: megatron/core/optimizer/__init__.py (get_standard_config_overrides, _get_param_groups).
#pragma once

#include <cstddef>
#include <string_view>

#include "ckpt/format/pickle/values/value.h"

namespace ferry {

struct ParameterKind {
  bool decayed = true;     // weight decay: not for vectors and biases
  bool routed = false;     // of an optimizer for routed experts alone
  bool decoupled = false;  // embeddings and output layer, when they have their own learning rate
  bool matrix = false;     // of an optimizer for matrices alone (optimizer/matrix_optimizer.h)
  auto operator<=>(const ParameterKind&) const = default;
};

/// `name` is that of the model's tensor, `axes` are those of the rank's part of it.
ParameterKind parameter_kind(std::string_view name, size_t axes, bool in_expert_optimizer,
                             bool decoupled_embeddings);

/// The kind of parameters that a group of an optimizer is of, by its settings. `args`: the run's.
/// `matrices`: the optimizer has matrices alone.
ParameterKind kind_of_group(const Value& settings, const Value& args, bool matrices);

}  // namespace ferry
