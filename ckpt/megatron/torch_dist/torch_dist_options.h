// What a torch_dist checkpoint is written as, and the releases of Megatron Core, as far as their
// distributed checkpoints differ.
#pragma once

#include <compare>
#include <string>
#include <string_view>

namespace ferry {

struct CoreRelease {
  int major = 0, minor = 20;
  auto operator<=>(const CoreRelease&) const = default;
};

inline constexpr CoreRelease kNewestCore{0, 20};
inline constexpr CoreRelease kCommonStateInside{0, 19};  // before it: common.pt
inline constexpr CoreRelease kSharedQueryGroups{0, 16};  // before it: not more tensor ranks
inline constexpr CoreRelease kFullyReshardable{0, 15};   // before it: no such optimizer state
inline constexpr CoreRelease kContentMetadata{0, 13};    // before it: none
inline constexpr CoreRelease kOldestCore{0, 8};

/// "0.16", "0.16.1", "core_v0.16.0". invalid when it is no release, or one before kOldestCore.
CoreRelease parse_core_release(std::string_view text);

std::string to_string(const CoreRelease& release);

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
