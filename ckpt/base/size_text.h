// Sizes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry {

/// "512MiB", "5GB", "1.5kB", "4096": bytes, below 2^63. Nothing for anything else.
std::optional<uint64_t> size_in_bytes(std::string_view text);

/// What such a text is, for messages.
inline constexpr std::string_view kSizeForms =
    "bytes or a number with kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of "
    "1024), such as 5GB";

}  // namespace ferry
