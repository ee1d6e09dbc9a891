#include <optional>

#include "ops/write_options.h"

namespace ferry {
namespace {

// Nothing when `name` does not match `from`.
std::optional<std::string> rename_of(std::string_view name, std::string_view from,
                                     std::string_view to) {
  const size_t star = from.find('*');
  if (star == std::string_view::npos) {
    return name == from ? std::optional(std::string(to)) : std::nullopt;
  }
  const std::string_view before = from.substr(0, star), after = from.substr(star + 1);
  if (name.size() < before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after)) {
    return std::nullopt;
  }
  const std::string_view kept =
      name.substr(before.size(), name.size() - before.size() - after.size());
  std::string renamed(to);
  if (const size_t at = renamed.find('*'); at != std::string::npos) renamed.replace(at, 1, kept);
  return renamed;
}

}  // namespace

std::string renamed(std::string_view name, const std::vector<Rename>& renames,
                    std::vector<bool>* used) {
  for (size_t i = 0; i < renames.size(); ++i) {
    if (auto found = rename_of(name, renames[i].first, renames[i].second)) {
      if (used) (*used)[i] = true;
      return *std::move(found);
    }
  }
  return std::string(name);
}

}  // namespace ferry
