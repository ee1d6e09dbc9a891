// Results go to standard output, whole or not at all.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ferry::tool {

/// Writes to standard output; io when it refuses (a full disk).
void print(std::string_view text);

/// The value with indent 2 and a newline; bytes that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& value);

}  // namespace ferry::tool
