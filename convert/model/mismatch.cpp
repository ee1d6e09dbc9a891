#include "convert/model/mismatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "convert/model/numbered_name.h"

namespace ferry {
namespace {

constexpr size_t kMaxLines = 20;
constexpr size_t kMaxCompared = 500;    // patterns, so that a hostile catalog costs little
constexpr size_t kMaxNameLength = 200;  // characters compared

struct Group {
  std::string pattern;
  std::vector<std::string> names;
  std::vector<std::string> numbers;  // distinct, in order
};

std::vector<Group> group(const std::vector<std::string>& names) {
  std::vector<Group> groups;
  std::map<std::string, size_t> positions;
  for (const std::string& name : names) {
    NumberPattern pattern = number_pattern(name);
    const auto [at, added] = positions.emplace(pattern.text, groups.size());
    if (added) groups.push_back({pattern.text, {}, {}});
    Group& found = groups[at->second];
    found.names.push_back(name);
    if (!pattern.number.empty() &&
        (found.numbers.empty() || found.numbers.back() != pattern.number)) {
      found.numbers.push_back(std::move(pattern.number));
    }
  }
  return groups;
}

std::string line(const Group& g) {
  if (g.names.size() == 1) return g.names.front();
  std::string numbers;
  for (size_t i = 0; i < std::min<size_t>(g.numbers.size(), 8); ++i) {
    numbers += (i > 0 ? ", " : "") + g.numbers[i];
  }
  if (g.numbers.size() > 8) numbers += ", ...";
  return fmt::format("{} ({} tensors: {})", g.pattern, g.names.size(), numbers);
}

// Layers may be stacked on one side and numbered on the other.
std::string comparable(const std::string& pattern) {
  std::string text = pattern;
  for (size_t at; (at = text.find(".*")) != std::string::npos;) text.erase(at, 2);
  return text.substr(0, kMaxNameLength);
}

std::optional<std::string> nearest(const Group& missing, const std::vector<Group>& candidates) {
  const std::string requested = comparable(missing.pattern);
  size_t best = requested.size() / 3 + 1;
  std::optional<std::string> name;
  for (size_t i = 0; i < std::min(candidates.size(), kMaxCompared); ++i) {
    const size_t distance = edit_distance(requested, comparable(candidates[i].pattern), best);
    if (distance < best) {
      best = distance;
      name = candidates[i].names.front();
    }
  }
  return name;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b, size_t limit) {
  const size_t difference = a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
  if (difference >= limit) return limit;
  std::vector<size_t> row(b.size() + 1), before(b.size() + 1), above(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    above.swap(before);
    before.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, substituted});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], above[j - 2] + 1);
    }
  }
  return std::min(row.back(), limit);
}

std::vector<NameGroup> grouped(const std::vector<std::string>& names,
                               const std::vector<std::string>& others) {
  const std::vector<Group> candidates = group(others);
  std::vector<NameGroup> result;
  for (const Group& each : group(names)) {
    const bool is_compared = result.size() < kMaxLines;  // the rest would take too long
    auto near = is_compared ? nearest(each, candidates) : std::nullopt;
    const std::string& pattern = each.names.size() == 1 ? each.names.front() : each.pattern;
    result.push_back({pattern, line(each), std::move(near).value_or("")});
  }
  return result;
}

std::string describe(const Misfit& misfit, std::string_view family) {
  const std::vector<NameGroup> missing = grouped(misfit.missing, misfit.left_over);
  const std::vector<NameGroup> left_over = grouped(misfit.left_over, {});
  std::string text;
  const auto heading = [&](std::string_view what, size_t count) {
    text += fmt::format("\n  {} ({}):", what, count);
  };
  const auto more = [&](size_t count) {
    if (count > kMaxLines) text += fmt::format("\n    ... and {} more", count - kMaxLines);
  };
  if (!missing.empty()) {
    heading(fmt::format("missing for {}", family), misfit.missing.size());
    for (size_t i = 0; i < std::min(missing.size(), kMaxLines); ++i) {
      text += "\n    " + missing[i].line;
      if (!missing[i].near.empty()) text += "; the checkpoint has " + missing[i].near;
    }
    more(missing.size());
  }
  if (!left_over.empty()) {
    heading("left over", misfit.left_over.size());
    for (size_t i = 0; i < std::min(left_over.size(), kMaxLines); ++i) {
      text += "\n    " + left_over[i].line;
    }
    more(left_over.size());
  }
  if (!misfit.misshapen.empty()) {
    heading("of another shape", misfit.misshapen.size());
    for (size_t i = 0; i < std::min(misfit.misshapen.size(), kMaxLines); ++i) {
      text += "\n    " + misfit.misshapen[i];
    }
    more(misfit.misshapen.size());
  }
  return text;
}

}  // namespace ferry
