// The parallel layout that a target is written for.
//
// Source: megatron/training/arguments.py (validate_args), core/transformer/transformer_config.py,
// core/parallel_state.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/run_arguments.h"

namespace ferry {

/// What the user asks for. What is absent stays as the source's arguments have it (1 without them),
/// but for what belongs to a number that changes:
///   - virtual stages, uneven stages and a custom layout belong to the number of stages;
///   - experts are split over as many tensor ranks as all else if they were before;
///   - there are as many data ranks as before, or the least multiple of them that the experts need.
struct ParallelTarget {
  std::optional<int64_t> tensor, pipeline, virtual_pipeline, expert, expert_tensor, data, context;
  std::optional<int64_t> first_stage_layers, last_stage_layers;
  std::optional<std::string> stage_letters;  // --pipeline-model-parallel-layout
  /// --account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split.
  bool embedding_is_a_layer = false, loss_is_a_layer = false;

  bool operator==(const ParallelTarget&) const = default;
};

/// `args` with the target's sizes, and all arguments that follow from them (world_size,
/// num_layers_per_virtual_pipeline_stage, ...), everything else as it was. read_run_arguments() of
/// the result describes the target. invalid, naming the number that does not fit and those that
/// would, when they cannot be had so or Megatron-LM refuses the stages; unsupported without args.
LoadedValue apply_target(const ParsedArguments& args, const ParallelTarget& target);

}  // namespace ferry
