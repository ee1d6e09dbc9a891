// What a PyTorch optimizer stores besides the state of its parameters: param_groups (learning rate,
// betas, ...) and how many steps it has made.
//
// Source: torch/optim/{optimizer,adamw}.py, deepspeed/runtime/zero/{stage_1_and_2,stage3}.py,
// deepspeed/ops/adam/fused_adam.py (a step in the group).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

}  // namespace ferry
