// What decides in which of an optimizer's parameter groups a parameter is.
//
// Source: megatron/core/optimizer/__init__.py (get_standard_config_overrides, _get_param_groups).
#pragma once

#include <cstddef>
#include <string_view>

#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/run_arguments.h"

namespace ferry {

struct ParameterKind {
  bool decayed = true;     // weight decay
  bool routed = false;     // of an optimizer for routed experts alone
  bool decoupled = false;  // embeddings and output layer, when they have their own learning rate
  bool matrix = false;     // of an optimizer for matrices alone (optimizer/matrix_optimizer.h)
  auto operator<=>(const ParameterKind&) const = default;
};

/// Whether weight decay is for a parameter: not for vectors and biases, but for those of norms of
/// queries and keys where `decays_qk_norms` (RunArguments). `name` is that of the model's tensor,
/// `axes` are those of the rank's part of it.
bool has_weight_decay(std::string_view name, size_t axes, bool decays_qk_norms);

/// `name`, `axes` and `decays_qk_norms` as above.
ParameterKind parameter_kind(std::string_view name, size_t axes, bool decays_qk_norms,
                             bool in_expert_optimizer, bool decoupled_embeddings);

/// The kind of parameters that a group of an optimizer is of, by its settings.
/// `matrices`: the optimizer has matrices alone.
ParameterKind kind_of_group(const Value& settings, const RunArguments& run, bool matrices);

}  // namespace ferry
