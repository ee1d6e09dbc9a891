// What is lost where a run's state goes into a format without Megatron-LM's sharded objects.
#pragma once

#include <string>
#include <string_view>

#include "ckpt/megatron/state/run_state.h"

namespace ferry {

/// A sentence for the warnings: the random number states unless the format `holds_rng`, the state
/// of rerun checks, extra states of modules that say something. Empty when there is none of them.
std::string lost_objects(const RunState& state, std::string_view format, bool holds_rng);

}  // namespace ferry
