// The keys under which PyTorch's distributed checkpoints hold an optimizer that names its
// parameters: parts between dots, the parameter's own dots among them.
//
//   optimizer.state.model.layers.0.mlp.up_proj.weight.exp_avg     state of a parameter
//   optimizer.param_groups.0.lr                                   a member of a group
//   optim.param_groups.layers.0.attention.wq.weight.lr            the same, flattened by parameter
//   app.optimizer_0.state.0.exp_avg                               of a parameter that is counted
//
// Source: torch/distributed/checkpoint/state_dict.py (get_optimizer_state_dict),
// torchtitan/components/optimizer, accelerate/utils/fsdp_utils.py.
#pragma once

#include <optional>
#include <string_view>

namespace ferry {

struct OptimizerKey {
  std::string_view optimizer;  // "optimizer", "app.optim": what the keys of one begin with
  bool in_groups = false;      // of param_groups; else of the state
  std::string_view parameter;  // or the number of a group
  std::string_view member;     // "exp_avg", "step", "lr"
};

/// Nothing for names of another form. Views of `name`.
std::optional<OptimizerKey> parse_optimizer_key(std::string_view name);

/// Whether the key's member is one that optimizers keep of a parameter: "optimizer.state.exp_avg.P"
/// has the form of a key, too, with the last part of P for its member.
bool is_state_of_parameter(const OptimizerKey& key);

}  // namespace ferry
