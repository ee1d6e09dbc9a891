#include "convert/model/numbered_name.h"

#include <algorithm>
#include <charconv>

namespace ferry {

std::optional<NumberedName> take_number(const std::string& name, std::string_view before) {
  const size_t at = name.find(before);
  if (at == std::string::npos) return std::nullopt;
  const char* begin = name.data() + at + before.size();
  const char* end = name.data() + name.size();
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || stop == end || *stop != '.') return std::nullopt;
  const std::string head = name.substr(0, at + before.size());
  return NumberedName{head + std::string(stop + 1, end), number};
}

NumberPattern number_pattern(std::string_view name) {
  NumberPattern pattern;
  while (true) {
    const size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    if (is_number && pattern.number.empty()) pattern.number = part;
    pattern.text += is_number ? std::string_view("*") : part;
    if (dot == name.npos) return pattern;
    pattern.text += '.';
    name.remove_prefix(dot + 1);
  }
}

}  // namespace ferry
