// What a model's sizes can be.
#pragma once

#include <cstdint>
#include <string>

#include "ckpt/megatron/model/architecture.h"

namespace ferry {

// Bounds on what is plausible, so that a hostile file cannot make the name tables endless.
inline constexpr int64_t kMaxLayers = 10'000;
inline constexpr int64_t kMaxModelSize = int64_t{1} << 40;  // of an axis
inline constexpr int64_t kMaxExperts = 100'000;
inline constexpr int64_t kMaxHeads = 1 << 20;  // and elements of a head

/// mismatch, naming the size and `source` ("its Megatron arguments"), when one is missing that
/// every transformer has, or is impossible. `path` is for messages.
void check_sizes(const Architecture& architecture, const std::string& path,
                 const std::string& source);

}  // namespace ferry
