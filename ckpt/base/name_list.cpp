#include "ckpt/base/name_list.h"

#include <fmt/format.h>

namespace ferry {

std::string some_of(const std::vector<std::string>& names, size_t most) {
  const size_t shown = std::min(names.size(), most);
  std::string text;
  for (size_t i = 0; i < shown; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace ferry
