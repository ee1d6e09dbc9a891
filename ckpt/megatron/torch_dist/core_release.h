// Releases of Megatron Core, as far as their distributed checkpoints differ.
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

}  // namespace ferry
