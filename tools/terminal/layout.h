// Parallel layouts as people and scripts read them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ckpt/checkpoint.h"

namespace ferry::tool {

/// "TP 2, PP 2, EP 4, ETP 1, DP 2 on 8 ranks"; sizes that are unknown, or say nothing, are left
/// out. Empty when nothing is known.
std::string layout_text(const ParallelLayout& layout);

/// Sizes by name; null: unknown.
nlohmann::json layout_json(const ParallelLayout& layout);

}  // namespace ferry::tool
