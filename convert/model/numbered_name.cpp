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

bool is_numbered(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace ferry
