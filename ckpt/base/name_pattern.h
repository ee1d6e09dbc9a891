// Names of files and folders with numbers in them.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry {

/// Whether `name` is `pattern` with decimal numbers in the place of each '#': the last of them, 0
/// where the pattern has none. Nothing when it is not.
inline std::optional<int64_t> last_number(std::string_view pattern, std::string_view name) {
  int64_t number = 0;
  for (; !pattern.empty(); pattern.remove_prefix(1)) {
    if (pattern[0] != '#') {
      if (!name.starts_with(pattern[0])) return std::nullopt;
      name.remove_prefix(1);
      continue;
    }
    if (name.starts_with('-')) return std::nullopt;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc()) return std::nullopt;
    name.remove_prefix(static_cast<size_t>(end - name.data()));
  }
  return name.empty() ? std::optional(number) : std::nullopt;
}

inline bool fits_pattern(std::string_view pattern, std::string_view name) {
  return last_number(pattern, name).has_value();
}

}  // namespace ferry
