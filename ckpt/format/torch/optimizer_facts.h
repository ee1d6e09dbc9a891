// What a PyTorch optimizer stores besides the state of its parameters: param_groups (learning rate,
// betas, ...) and how many steps it has made.
//
// Source: torch/optim/{optimizer,adamw}.py, deepspeed/runtime/zero/{stage_1_and_2,stage3}.py,
// deepspeed/ops/adam/fused_adam.py (a step in the group).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/format/torch/archive/torch_archive.h"

namespace ferry {

struct OptimizerFacts {
  LoadedValue param_groups;      // a list of dicts; none when there is none
  std::optional<int64_t> steps;  // the most of its first parameters
};

/// Looks for them in the dicts that `archive`, the whole of `file`, holds. Whatever is not as
/// PyTorch stores it counts as not there.
OptimizerFacts read_optimizer_facts(const TorchArchive& archive, const ReadableFile& file);

/// Files of ranks that a program writes together count the same steps: others are left over from
/// another save, which nothing else may show.
class StepsOfRanks {
 public:
  void add(const std::string& file, std::optional<int64_t> steps);
  /// corrupt, naming the two files, where steps differ.
  void check(const std::string& folder) const;

 private:
  std::string first_, other_;
  int64_t steps_ = 0, other_steps_ = 0;
};

/// A whole number that is none below zero: of an integer, of a real number, or of a tensor of one
/// element, which is read.
std::optional<int64_t> read_count(const TorchArchive& archive, const ReadableFile& file,
                                  const Value& value);

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
