// What to say when a checkpoint's tensors are not those of the family.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// Number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`,
/// or `limit` when it is that or more.
size_t edit_distance(std::string_view a, std::string_view b, size_t limit);

struct Misfit {
  std::vector<std::string> missing;    // canonical names
  std::vector<std::string> left_over;  // names in the checkpoint
  std::vector<std::string> misshapen;  // whole sentences

  bool any() const { return !missing.empty() || !left_over.empty() || !misshapen.empty(); }
};

/// Names of several layers or experts as one line: "model.layers.*.norm.weight (2 tensors: 0, 1)".
struct NameGroup {
  std::string pattern;  // a name, or names with '*' for their numbers
  std::string line;
  std::string near;  // the nearest of the other list; empty: none is near
};
/// The groups of `names`, each with the nearest of `others`.
std::vector<NameGroup> grouped(const std::vector<std::string>& names,
                               const std::vector<std::string>& others);

/// The misfit for people: names of several layers or experts are one line, a missing name stands
/// with the nearest left-over one.
std::string describe(const Misfit& misfit, std::string_view family);

}  // namespace ferry
