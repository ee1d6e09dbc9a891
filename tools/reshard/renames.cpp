#include "tools/reshard/renames.h"

#include <algorithm>
#include <optional>

#include "ckpt/base/error.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
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

Rename parse_rename(const std::string& text) {
  const size_t equals = text.find('=');
  const auto stars = [](std::string_view part) {
    return std::count(part.begin(), part.end(), '*');
  };
  const std::string from = text.substr(0, equals);
  const std::string to = equals == std::string::npos ? "" : text.substr(equals + 1);
  if (from.empty() || to.empty() || stars(from) > 1 || stars(from) != stars(to)) {
    fail(ErrorKind::invalid,
         "--rename: '{}' is not OLD=NEW, two names of tensors (or patterns with one * each)",
         printable(text));
  }
  return {from, to};
}

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

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return glob_matches(pattern, name); });
}

}  // namespace ferry::tool
