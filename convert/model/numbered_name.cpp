#include "convert/model/numbered_name.h"

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

}  // namespace ferry
