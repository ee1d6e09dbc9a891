// What a torch_dist checkpoint is written as.
#pragma once

#include "ckpt/megatron/torch_dist/core_release.h"

namespace ferry {

/// Form of the optimizer's state in a torch_dist checkpoint.
enum class ShardedOptimizer {
  none,               // left out; the arguments then say so (no_save_optim)
  fully_reshardable,  // distributed optimizer, a tensor a parameter: loads at any layout
  dp_reshardable,     // distributed optimizer, its flat buffers: loads at this layout only
  plain,              // without distributed optimizer, a tensor a parameter: loads at any layout
};

struct TorchDistOptions {
  CoreRelease release = kNewestCore;  // that is to load it
  ShardedOptimizer optimizer = ShardedOptimizer::fully_reshardable;
  int files_per_rank = 1;
  bool zstd = false;  // the plan is for run_compressed()
};

}  // namespace ferry
