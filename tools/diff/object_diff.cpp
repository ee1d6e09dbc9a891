#include "tools/diff/object_diff.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/core/values/value.h"
#include "ckpt/format/torch/objects.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

constexpr size_t kMostChanges = 5;      // listed of an object
constexpr size_t kMostCharacters = 40;  // of a value

std::string brief(const json& value) {
  return shortened(value.dump(-1, ' ', false, json::error_handler_t::replace), kMostCharacters);
}

// The values are not deeper than to_json makes them.
void collect(const json& a, const json& b, const std::string& path,
             std::vector<std::string>& changes) {
  if (a == b) return;
  const auto at = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items()) {
      const auto other = b.find(key);
      if (other == b.end()) {
        changes.push_back(fmt::format("{}: {} / absent", at(key), brief(value)));
      } else {
        collect(value, *other, at(key), changes);
      }
    }
    for (const auto& [key, value] : b.items()) {
      if (!a.contains(key))
        changes.push_back(fmt::format("{}: absent / {}", at(key), brief(value)));
    }
  } else if (a.is_array() && b.is_array() && a.size() == b.size()) {
    for (size_t i = 0; i < a.size(); ++i) collect(a[i], b[i], at(std::to_string(i)), changes);
  } else {
    changes.push_back(
        fmt::format("{}: {} / {}", path.empty() ? "value" : path, brief(a), brief(b)));
  }
}

struct Loaded {
  json value;
  std::vector<std::string> storages;  // bytes of its tensors, in the order in which they are met
};

std::optional<Loaded> read(const Catalog& catalog, const Object& object,
                           std::vector<std::string>& problems) {
  try {
    const LoadedValue loaded = read_object_with_storages(catalog, object);
    Loaded result{to_json(loaded.value), {}};
    for (const uint32_t node : reachable_nodes(loaded.value)) {
      const auto id = storage_id(loaded.document->root_at(node));
      if (id) result.storages.push_back(loaded.document->storages.find(id->key)->second);
    }
    return result;
  } catch (const Error& error) {
    problems.push_back(error.what());
    return std::nullopt;
  }
}

std::vector<std::string> changes_of(const Loaded& a, const Loaded& b) {
  std::vector<std::string> changes = tool::changes_between(a.value, b.value);
  if (changes.empty() && a.storages != b.storages) changes.push_back("values of tensors in it");
  return changes;
}

}  // namespace

std::vector<std::string> changes_between(const json& a, const json& b) {
  std::vector<std::string> changes;
  collect(a, b, {}, changes);
  return changes;
}

ObjectsDiff diff_objects(const Catalog& a, const Catalog& b) {
  ObjectsDiff result;
  std::unordered_map<std::string_view, const Object*> others;
  for (const Object& object : b.objects) others.emplace(object.name, &object);
  for (const Object& object : a.objects) {
    const auto other = others.find(object.name);
    if (other == others.end()) {
      result.only_in_a.push_back(object.name);
      continue;
    }
    const auto value_a = read(a, object, result.problems);
    const auto value_b = read(b, *other->second, result.problems);
    others.erase(other);
    if (!value_a || !value_b) continue;
    std::vector<std::string> changes = changes_of(*value_a, *value_b);
    if (changes.empty()) {
      ++result.equal;
      continue;
    }
    const size_t listed = std::min(changes.size(), kMostChanges);
    const auto more = static_cast<int64_t>(changes.size() - listed);
    changes.resize(listed);
    result.changed.push_back({object.name, std::move(changes), more});
  }
  for (const Object& object : b.objects) {
    if (others.contains(object.name)) result.only_in_b.push_back(object.name);
  }
  return result;
}

}  // namespace ferry::tool
