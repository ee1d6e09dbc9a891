// Lists of numbers written as expressions, as --moe-layer-freq takes them: "([0]*3+[1]*2)*4".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ferry {

/// Accepts lists of integers, +, * with an integer, and parentheses. invalid, naming `flag`, for
/// anything else or more than 65,536 elements.
std::vector<int64_t> parse_layer_pattern(std::string_view flag, std::string_view text);

}  // namespace ferry
