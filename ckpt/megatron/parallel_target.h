// The parallel layout that a target is written for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ckpt/core/value.h"

namespace ferry {

/// What the user asks for; what is absent stays as the source's arguments have it (1 without them).
struct ParallelTarget {
  std::optional<int64_t> tensor, pipeline, virtual_pipeline, expert, expert_tensor, data, context;
  std::optional<int64_t> first_stage_layers, last_stage_layers;
  std::optional<std::string> stage_letters;  // --pipeline-model-parallel-layout
};

/// `args` with the target's sizes, and all arguments that follow from them (world_size,
/// num_layers_per_virtual_pipeline_stage, ...), everything else as it was. read_run_arguments() of
/// the result describes the target. invalid, naming the number that does not fit and those that
/// would, when heads, groups, experts, layers or the vocabulary cannot be split so.
LoadedValue apply_target(const LoadedValue& args, const ParallelTarget& target);

}  // namespace ferry
