// Parts of fuzz targets that carry an input through planning.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/megatron/model/target_options.h"
#include "ckpt/megatron/state/run_state.h"
#include "tests/fuzz/mutator.h"

namespace ferry::test {

/// Sizes of a parallel layout by the options' names: most are small, few are absurd.
nlohmann::json random_layout(Random& random);
ParallelTarget layout_of(const nlohmann::json& layout);

/// Which writer: "torch_dist", "torch", "fsdp_dtensor", "dcp" and the forms of the optimizer's
/// state of the first.
std::string random_writer(Random& random);

/// Brings a state to a layout and plans its folder; false when that cannot be had. What is planned
/// is checked, and a plan that its own check refuses is a finding.
bool plan_state(RunState state, const ParallelTarget& target, const std::string& writer);

}  // namespace ferry::test
