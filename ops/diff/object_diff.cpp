#include "ops/diff/object_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "ckpt/base/box.h"
#include "ckpt/base/error.h"
#include "ckpt/base/utf8.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/format/torch/objects.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr size_t kMostChanges = 5;      // listed of an object
constexpr size_t kMostCharacters = 40;  // of a value
constexpr size_t kShownBefore = 10;     // of what is the same before it differs
constexpr int kMostDepth = 32;          // as to_json
// What the parser lets through a value can name again and again.
constexpr int64_t kMostValues = 1'000'000;
constexpr uint64_t kMostBytes = uint64_t{4} << 30;

std::string here(const std::string& path) { return path.empty() ? "value" : path; }

std::string written(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The size of a long list or object, the text of any other value.
std::string brief(const json& value) {
  std::string text = written(value);
  if (text.size() <= kMostCharacters || !value.is_structured()) {
    return shortened(std::move(text), kMostCharacters);
  }
  return value.is_array() ? fmt::format("a list of {}", value.size())
                          : fmt::format("an object of {} members", value.size());
}

// Both, so that one sees where they differ.
std::string pair_text(const json& a, const json& b) {
  std::string brief_a = brief(a), brief_b = brief(b);
  if (brief_a == brief_b) {
    const std::string text_a = written(a), text_b = written(b);
    const auto differs = std::mismatch(text_a.begin(), text_a.end(), text_b.begin(), text_b.end());
    auto same = static_cast<size_t>(differs.first - text_a.begin());
    same -= std::min(same, kShownBefore);
    while (same > 0 && (static_cast<unsigned char>(text_a[same]) & 0xC0) == 0x80) --same;
    const std::string cut = same > 0 ? "..." : "";
    brief_a = cut + shortened(text_a.substr(same), kMostCharacters);
    brief_b = cut + shortened(text_b.substr(same), kMostCharacters);
  }
  return brief_a + " / " + brief_b;
}

// What stands alone in a list around it.
const json* alone_in(const json& list) {
  return list.is_array() && list.size() == 1 ? &list[0] : nullptr;
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
  } else if (const json* inner = alone_in(a); inner && *inner == b) {
    changes.push_back(here(path) + ": [x] / x, of the same x");
  } else if (const json* other = alone_in(b); other && *other == a) {
    changes.push_back(here(path) + ": x / [x], of the same x");
  } else {
    changes.push_back(here(path) + ": " + pair_text(a, b));
  }
}

struct Loaded {
  LoadedValue value;
  json text;
};

Loaded read(const Catalog& catalog, const Object& object) {
  LoadedValue value = read_object_with_storages(catalog, object);
  json text = to_json(value.value);
  return {std::move(value), std::move(text)};
}

// Where bytes differ that the text of two values does not show: of tensors and storages.
class BytesDiff {
 public:
  // Compares values whose text is the same.
  std::vector<std::string> changes(const Value& a, const Value& b) {
    compare(a, b, "", 0);
    return std::move(changes_);
  }

 private:
  void compare(const Value& a, const Value& b, const std::string& path, int depth) {
    if (depth > kMostDepth || ++values_ > kMostValues || bytes_ > kMostBytes) return;
    if (a.tensor() && b.tensor()) return compare_bytes(elements(a), elements(b), path, "a tensor");
    if (const auto id_a = storage_id(a), id_b = storage_id(b); id_a && id_b) {
      return compare_bytes(bytes(a, id_a->key), bytes(b, id_b->key), path, "a storage");
    }
    if (a.kind() == ValueKind::bytes && b.kind() == ValueKind::bytes) {
      return compare_bytes(a.text(), b.text(), path, "bytes");
    }
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      compare(a[i], b[i], inside(path, std::to_string(i)), depth + 1);
    }
    std::map<std::string, Value> others;  // the orders of two dicts may differ
    for (size_t i = 0; i < b.pair_count(); ++i) others[key(b, i)] = b.pair_value(i);
    for (size_t i = 0; i < a.pair_count(); ++i) {
      const auto other = others.find(key(a, i));
      if (other == others.end()) continue;
      compare(a.pair_value(i), other->second, inside(path, other->first), depth + 1);
    }
  }

  static std::string key(const Value& dict, size_t index) {
    const Value key = dict.pair_key(index);
    return key.kind() == ValueKind::string ? key.text() : written(to_json(key));
  }
  static std::string inside(const std::string& path, const std::string& key) {
    return path.empty() ? key : path + "." + key;
  }
  void compare_bytes(std::string_view a, std::string_view b, const std::string& path,
                     const char* what) {
    bytes_ += a.size() + b.size();
    if (a != b) changes_.push_back(fmt::format("{}: {} of other values", here(path), what));
  }

  static std::string_view bytes(const Value& value, std::string_view key) {
    const auto& storages = value.document()->storages;
    const auto found = storages.find(key);
    return found == storages.end() ? std::string_view() : std::string_view(found->second);
  }

  // The bytes of a tensor in row-major order. Of a view that repeats elements: the storage, for
  // it can stand for far more bytes than there are.
  static std::string elements(const Value& value) {
    const StoredTensor& tensor = *value.tensor();
    const std::string_view storage = bytes(value, tensor.storage_key);
    const auto count = static_cast<uint64_t>(element_count(tensor.shape, tensor.storage_key));
    if (count == 0) return {};
    const auto size = static_cast<size_t>(size_bytes(tensor.dtype));
    const uint64_t held = storage.size() / size;
    if (count > held) return std::string(storage);
    std::string result;
    result.reserve(count * size);
    Dims at(tensor.shape.size(), 0);
    for (uint64_t i = 0; i < count; ++i) {
      auto element = static_cast<uint64_t>(tensor.storage_offset);
      for (size_t axis = 0; axis < at.size(); ++axis) {
        element += static_cast<uint64_t>(at[axis]) * static_cast<uint64_t>(tensor.strides[axis]);
      }
      if (element >= held) return std::string(storage);  // a damaged file
      result += storage.substr(element * size, size);
      for (size_t axis = at.size(); axis-- > 0 && ++at[axis] == tensor.shape[axis];) at[axis] = 0;
    }
    return result;
  }

  std::vector<std::string> changes_;
  int64_t values_ = 0;
  uint64_t bytes_ = 0;
};

std::vector<std::string> changes_of(const Loaded& a, const Loaded& b) {
  std::vector<std::string> changes = changes_between(a.text, b.text);
  return changes.empty() ? BytesDiff().changes(a.value.value, b.value.value) : changes;
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
    const Object& in_b = *other->second;
    others.erase(other);
    std::vector<std::string> changes;
    try {
      changes = changes_of(read(a, object), read(b, in_b));
    } catch (const Error& error) {
      result.problems.push_back(error.what());
      continue;
    }
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

}  // namespace ferry
