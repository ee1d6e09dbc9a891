// Optimizer state of legacy rank folders, as one entry a parameter.
//
// With the distributed optimizer: distrib_optim.pt holds the flat buffers of dp_reshardable, one
// tensor a buffer, bucket after bucket without the buckets' padded ends. Without it: PyTorch's own
// state by parameter id and fp32 copies, group by group in order of registration. Both follow the
// order of the rank's state dict.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (get_parameter_state_dp_zero),
// optimizer.py (Float16OptimizerWithFloat16Params.state_dict), __init__.py (_get_param_groups).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/rank_folders/model.h"

namespace ferry {

/// `heads`: attention heads of one rank. mismatch or unsupported, with the reason, when the state
/// does not fit the model.
void add_flat_state(const std::vector<RankFolder>& folders, const std::vector<LegacyRank>& ranks,
                    const LegacyModel& model, const RunArguments& run, int64_t heads,
                    OptimizerEntries& entries);
void add_plain_state(const std::vector<RankFolder>& folders, const std::vector<LegacyRank>& ranks,
                     const LegacyModel& model, const RunArguments& run, int64_t heads,
                     OptimizerEntries& entries);

/// The state of the parameters of one group, which are `members`; of those that `gives` names.
/// `place`: for messages. mismatch when there is no fp32 copy of one in 16 bits.
void add_parameter_group(const PlainOptimizer::Group& group,
                         const std::vector<const LegacyTensor*>& members,
                         const std::function<bool(const LegacyTensor&)>& gives,
                         const std::string& place, int64_t heads, OptimizerEntries& entries);

}  // namespace ferry
