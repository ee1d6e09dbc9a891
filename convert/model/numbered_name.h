// Names with a number for a part, as those of layers and experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry {

struct NumberedName {
  std::string without;  // the name without number and its dot
  int64_t number = 0;
};

/// The number after `before` in `name`, which ends at a dot: 3 after "decoder.layers." in
/// "decoder.layers.3.x". Nothing when there is none.
std::optional<NumberedName> take_number(const std::string& name, std::string_view before);

/// A name whose modules that are numbers (of a layer, a block, an expert) are '*':
/// "decoder.layers.3.x" -> ("decoder.layers.*.x", "3").
struct NumberPattern {
  std::string text;
  std::string number;  // the first of them; empty: there is none
};
NumberPattern number_pattern(std::string_view name);
inline bool is_numbered(std::string_view name) { return !number_pattern(name).number.empty(); }

}  // namespace ferry
