// What a run's checkpoint is written for and as: the parallel layout, the release of Megatron Core,
// the form of the optimizer's state.
//
// Source: megatron/training/arguments.py (validate_args), core/transformer/transformer_config.py,
// core/parallel_state.py.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// What the user asks for. What is absent stays as the source's arguments have it (1 without them),
/// but for what belongs to a number that changes:
///   - virtual stages, uneven stages and a custom layout belong to the number of stages;
///   - experts are split over as many tensor ranks as all else if they were before;
///   - there are as many data ranks as before, or the least multiple of them that the experts need.
struct ParallelTarget {
  std::optional<int64_t> tensor = {}, pipeline = {}, virtual_pipeline = {}, expert = {},
                         expert_tensor = {}, data = {}, context = {};
  std::optional<int64_t> first_stage_layers = {}, last_stage_layers = {};
  std::optional<std::string> stage_letters = {};  // --pipeline-model-parallel-layout
  /// --account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split.
  bool embedding_is_a_layer = false, loss_is_a_layer = false;

  bool operator==(const ParallelTarget&) const = default;
};

/// A release of Megatron Core. Releases whose distributed checkpoints do not differ are as one.
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

/// "0.16", "0.16.1", "core_v0.16.0". invalid when it is not a release, or one before kOldestCore.
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
  bool zstd = false;  // each file's tensors are compressed
};

}  // namespace ferry
