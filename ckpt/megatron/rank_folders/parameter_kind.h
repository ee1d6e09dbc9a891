// What decides in which of an optimizer's parameter groups a parameter is.
//
// Source: megatron/core/optimizer/__init__.py (get_standard_config_overrides, _get_param_groups).
#pragma once

#include <cstddef>
#include <string_view>

namespace ferry {

struct ParameterKind {
  bool decayed = true;     // weight decay: not for vectors and biases
  bool routed = false;     // of an optimizer for routed experts alone
  bool decoupled = false;  // embeddings and output layer, when they have their own learning rate
  auto operator<=>(const ParameterKind&) const = default;
};

/// `name` is that of the model's tensor, `axes` are those of the rank's part of it.
ParameterKind parameter_kind(std::string_view name, size_t axes, bool in_expert_optimizer,
                             bool decoupled_embeddings);

}  // namespace ferry
