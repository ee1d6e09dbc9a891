// Base64 decoding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// Empty unless `text` is base64 (RFC 4648, with padding).
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ferry
