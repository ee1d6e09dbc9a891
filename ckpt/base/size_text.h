// Sizes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// "512MiB", "5GB", "1.5kB", "4096": bytes, below 2^63. Nothing for anything else.
std::optional<uint64_t> size_in_bytes(std::string_view text);

/// Three significant digits: "1.23", "12.3", "123".
std::string three_digits(double value);

/// "1.23 GB": decimal units, three digits.
std::string human_bytes(uint64_t bytes);

/// What such a text is, for messages.
inline constexpr std::string_view kSizeForms =
    "bytes or a number with kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of "
    "1024), such as 5GB";

}  // namespace ferry
