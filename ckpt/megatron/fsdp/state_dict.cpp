#include "ckpt/megatron/fsdp/state_dict.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/objects.h"

namespace ferry {
namespace {

constexpr size_t kDeepestPath = 16;

StatePath::Part path_part_of(std::string_view text) {
  StatePath::Part part{std::string(text), -1};
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= 0) {
    part.position = number;
  }
  return part;
}

// A dict, a list or a leaf under construction.
struct StateNode {
  std::vector<std::pair<StatePath::Part, StateNode>> children;
  std::unordered_map<std::string, size_t> numbers;  // of the children, by key
  std::optional<LoadedValue> leaf;

  StateNode& child(const StatePath::Part& part) {
    const auto [at, is_new] = numbers.emplace(part.key, children.size());
    if (is_new) children.emplace_back(part, StateNode());
    return children[at->second].second;
  }
};

Value value_of_node(Draft& draft, StateNode& node) {
  if (node.leaf) return draft.copy(node.leaf->value);
  const bool is_list = std::ranges::all_of(
      node.children, [](const auto& child) { return child.first.position >= 0; });
  if (!is_list) {
    const Value dict = draft.dict();
    for (auto& [part, child] : node.children)
      draft.add(dict, part.key, value_of_node(draft, child));
    return dict;
  }
  std::ranges::stable_sort(node.children, {},
                           [](const auto& child) { return child.first.position; });
  const Value list = draft.list();
  for (auto& [part, child] : node.children) draft.append(list, value_of_node(draft, child));
  return list;
}

}  // namespace

StatePaths::StatePaths(const Value& paths) {
  for (size_t i = 0; i < paths.pair_count(); ++i) {
    if (const auto key = paths.pair_key(i).string()) known_.emplace(*key, paths.pair_value(i));
  }
}

StatePath StatePaths::of(std::string_view key) const {
  StatePath path;
  const auto found = known_.find(key);
  const Value known = found == known_.end() ? Value() : found->second;
  for (size_t i = 0; i < known.size(); ++i) {
    if (const auto text = known[i].string()) {
      path.parts.push_back({std::string(*text), -1});
    } else if (const auto position = known[i].integer(); position && *position >= 0) {
      path.parts.push_back({std::to_string(*position), *position});
    } else {
      path.parts.clear();
      break;
    }
  }
  if (!path.parts.empty()) return path;
  for (std::string_view rest = key;;) {
    const size_t dot = rest.find('.');
    path.parts.push_back(path_part_of(rest.substr(0, dot)));
    if (dot == std::string_view::npos) return path;
    rest.remove_prefix(dot + 1);
  }
}

LoadedValue read_member(const Checkpoint& checkpoint, std::string_view name,
                        const std::function<bool(const StatePath&)>& is_used) {
  StateNode root;
  const StatePaths paths(checkpoint.paths.value);
  for (const Object& object : checkpoint.catalog->objects) {
    if (!object.name.starts_with(name)) continue;
    const StatePath path = paths.of(object.name);
    if (path.parts.front().key != name || (is_used && !is_used(path))) continue;
    if (path.parts.size() > kDeepestPath) {
      fail(ErrorKind::exhausted,
           "object {} nests {} deep in the state dict, {} at most are expected", object.name,
           path.parts.size(), kDeepestPath);
    }
    StateNode* node = &root;
    for (const StatePath::Part& part : path.parts) node = &node->child(part);
    node->leaf = read_object_with_storages(checkpoint.catalog, object);
  }
  if (root.children.empty()) return {};
  Draft draft;
  const Value value = value_of_node(draft, root.children.front().second);
  return std::move(draft).finish(value);
}

}  // namespace ferry
