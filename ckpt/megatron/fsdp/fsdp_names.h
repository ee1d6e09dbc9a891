// Keys of the checkpoints that Megatron-LM saves through PyTorch's own state dicts.
//
//   model.module.decoder.layers.0.mlp.linear_fc1.weight_w                   a parameter
//   optimizer.state.module.module.module.decoder...weight_w.exp_avg         its state, by name
//   optimizer.param_to_group_meta.module.module.module.decoder...weight.lr  its group, by name
//   optimizer.optimizer.state.3.exp_avg                                     state by number
//   optimizer.fp32_from_fp16_params.0.3                                     fp32 copy by group
//   optimizer.optimizer.param_groups.0.lr                                   a group
//
// How many wrappers (`module.`) there are differs from release to release. Where optimizers are
// chained, `optimizer.` is followed by the number of one.
//
// Source: megatron/training/checkpointing.py (generate_state_dict), core/optimizer/
// {optimizer,distrib_optimizer}.py, torch/distributed/checkpoint/_nested_dict.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry {

/// The parameter's name in its module: "model.", "model0." and any number of "module." taken off.
/// Nothing for a key that does not start with "model." or "model<n>.".
std::optional<std::string_view> fsdp_parameter(std::string_view key);

struct FsdpOptimizerKey {
  enum class Kind : uint8_t {
    state_by_name,    // parameter, state
    group_by_name,    // parameter, state: the member of its group
    state_by_number,  // number, state
    master,           // group, number: among the group's members in 16 bits
    group,            // group, state: the member of the group
  };
  Kind kind = Kind::state_by_name;
  int64_t optimizer = 0;
  std::string_view parameter;
  int64_t group = 0, number = 0;
  std::string_view state;
};

/// Nothing for any other key.
std::optional<FsdpOptimizerKey> parse_fsdp_optimizer_key(std::string_view key);

}  // namespace ferry
