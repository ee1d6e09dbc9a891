// What the parts of the legacy writer work on.
#pragma once

#include <vector>

#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/rank_folders/folder_names.h"
#include "ckpt/megatron/state/run_state.h"
#include "ckpt/megatron/state/state_parts.h"

namespace ferry {

struct LegacyTarget {
  explicit LegacyTarget(const RunState& from)
      : state(&from), run(from.args.run), parts(from), layout(parts.tensors(), run) {
    choice.modules = from.modules.value_or(default_modules(run));
    choice.separate_experts = layout.has_experts() && experts_are_separate(run);
  }

  const RunState* state;
  RunArguments run;
  StateParts parts;
  ModelLayout layout;
  BufferChoice choice;
};

/// The files of one rank folder.
struct LegacyRankTarget {
  RankFolder folder;
  std::vector<std::vector<LocalParameter>> chunks;  // parameters by virtual stage

  /// Whether this folder is the first to hold that parameter.
  bool gives(const LocalParameter& parameter) const {
    const bool first = parameter.routed_expert ? folder.gives_experts : folder.gives_dense;
    return first && parameter.first_copy;
  }
};

}  // namespace ferry
