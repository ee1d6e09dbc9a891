// The options of operations (ckpt/base/option_name.h) as the flags of this program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry::tool {

/// A message of the libraries with its options as flags: "--optimizer none".
std::string in_flags(std::string_view message);
std::vector<std::string> in_flags(const std::vector<std::string>& messages);

}  // namespace ferry::tool
