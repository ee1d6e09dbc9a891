#include "ckpt/format/pickle/values/value.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/base/utf8.h"

namespace ferry {
namespace {

const ValueNode kNone;
const std::string kNoText;

// An instance that stands for one plain value: an enum member, a path.
std::optional<Value> single_argument(const Value& value, const ValueNode& node) {
  if (node.kind == ValueKind::object && node.items.count == 1 && node.pairs.count == 0) {
    return value[0];
  }
  return std::nullopt;
}

class JsonWriter {
 public:
  explicit JsonWriter(int max_depth) : max_depth_(max_depth) {}

  nlohmann::json write(const Value& value) {
    if (!may_write(value.text())) return "...";
    const bool nests = value.size() > 0 || value.pair_count() > 0;
    if (nests) {
      for (uint32_t node : path_) {
        if (node == value.node()) return "...";
      }
      if (static_cast<int>(path_.size()) >= max_depth_) return "...";
    }
    path_.push_back(value.node());
    nlohmann::json json = write_node(value);
    path_.pop_back();
    return json;
  }

 private:
  // Counts a value with this text; false when what was written is enough.
  bool may_write(std::string_view text) {
    written_ += 1 + static_cast<int64_t>(text.size() / kTextOfAValue);
    return written_ <= kMostValues;
  }

  nlohmann::json write_node(const Value& value) {
    switch (value.kind()) {
      case ValueKind::none:
        return nullptr;
      case ValueKind::boolean:
        return *value.boolean();
      case ValueKind::integer:
        return *value.integer();
      case ValueKind::real:
        return *value.real();
      case ValueKind::big_integer:
      case ValueKind::string:
      case ValueKind::global:
        return to_utf8(value.text());
      case ValueKind::bytes:
        return {{"bytes", value.text().size()}};
      case ValueKind::list:
      case ValueKind::tuple:
      case ValueKind::set:
        return write_items(value);
      case ValueKind::dict: {
        nlohmann::json json = nlohmann::json::object();
        write_pairs(value, json);
        return json;
      }
      case ValueKind::tensor: {
        const StoredTensor& tensor = *value.tensor();
        return {{"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}};
      }
      case ValueKind::object:
        return write_object(value);
    }
    return nullptr;
  }

  nlohmann::json write_items(const Value& value) {
    nlohmann::json json = nlohmann::json::array();
    for (size_t i = 0; i < value.size(); ++i) {
      json.push_back(write(value[i]));
      if (written_ > kMostValues) break;
    }
    return json;
  }

  void write_pairs(const Value& value, nlohmann::json& json) {
    for (size_t i = 0; i < value.pair_count(); ++i) {
      const Value key = value.pair_key(i);
      const auto text = key.string();
      if (text && !may_write(*text)) {
        json["..."] = "...";
        return;
      }
      json[text ? to_utf8(*text) : write(key).dump()] = write(value.pair_value(i));
      if (written_ > kMostValues) return;
    }
  }

  nlohmann::json write_object(const Value& value) {
    const bool is_path = value.text().starts_with("pathlib.");
    if (is_path) {
      std::string path;
      for (size_t i = 0; i < value.size(); ++i) {
        const auto part = value[i].string();
        if (!may_write(part.value_or(""))) return "...";
        if (!path.empty() && path != "/") path += '/';
        path += to_utf8(part.value_or("?"));
      }
      return path;
    }
    if (value.size() == 1 && value.pair_count() == 0) return write(value[0]);
    nlohmann::json json = {{"__class__", to_utf8(value.text())}};
    if (value.size() > 0) json["__args__"] = write_items(value);
    write_pairs(value, json);
    return json;
  }

  static constexpr int64_t kMostValues = 1 << 20;
  static constexpr size_t kTextOfAValue = 64;  // bytes that count as another value

  int max_depth_;
  int64_t written_ = 0;
  std::vector<uint32_t> path_;
};

}  // namespace

const ValueNode& Value::data() const noexcept {
  return document_ && node_ < document_->nodes.size() ? document_->nodes[node_] : kNone;
}

ValueKind Value::kind() const noexcept { return data().kind; }

std::optional<bool> Value::boolean() const {
  if (data().kind == ValueKind::boolean) return data().number != 0;
  return std::nullopt;
}

std::optional<int64_t> Value::integer() const {
  const ValueNode& node = data();
  if (node.kind == ValueKind::integer || node.kind == ValueKind::boolean) return node.number;
  if (const auto inner = single_argument(*this, node)) {
    if (inner->kind() == ValueKind::integer) return inner->integer();
  }
  return std::nullopt;
}

std::optional<double> Value::real() const {
  const ValueNode& node = data();
  if (node.kind == ValueKind::real) return std::bit_cast<double>(node.number);
  if (node.kind == ValueKind::integer) return static_cast<double>(node.number);
  return std::nullopt;
}

std::optional<std::string_view> Value::string() const {
  const ValueNode& node = data();
  if (node.kind == ValueKind::string) return std::string_view(text());
  if (node.kind == ValueKind::bytes && utf8_prefix(text(), false) == text().size()) {
    return std::string_view(text());
  }
  if (const auto inner = single_argument(*this, node)) {
    if (inner->kind() == ValueKind::string) return inner->string();
  }
  return std::nullopt;
}

const std::string& Value::text() const {
  const ValueNode& node = data();
  if (node.text == 0 || node.kind == ValueKind::tensor) return kNoText;
  return document_
      ->texts[node.has_reduction() ? document_->reductions[node.reduction()].text : node.text];
}

const StoredTensor* Value::tensor() const {
  const ValueNode& node = data();
  return node.kind == ValueKind::tensor ? &document_->tensors[node.number] : nullptr;
}

size_t Value::size() const noexcept { return data().items.count; }

Value Value::operator[](size_t index) const {
  const auto& items = data().items;
  return index < items.count ? Value(document_, document_->slots[items.begin + index]) : Value();
}

size_t Value::pair_count() const noexcept { return data().pairs.count / 2; }

Value Value::pair_key(size_t index) const {
  const auto& pairs = data().pairs;
  if (index >= pairs.count / 2) return {};
  return Value(document_, document_->slots[pairs.begin + 2 * index]);
}

Value Value::pair_value(size_t index) const {
  const auto& pairs = data().pairs;
  if (index >= pairs.count / 2) return {};
  return Value(document_, document_->slots[pairs.begin + 2 * index + 1]);
}

Value Value::get(std::string_view key) const {
  // The last one wins, as when Python fills a dict.
  for (size_t i = pair_count(); i-- > 0;) {
    const Value k = pair_key(i);
    if (k.kind() == ValueKind::string && k.text() == key) return pair_value(i);
  }
  return {};
}

bool Value::has(std::string_view key) const {
  for (size_t i = 0; i < pair_count(); ++i) {
    const Value k = pair_key(i);
    if (k.kind() == ValueKind::string && k.text() == key) return true;
  }
  return false;
}

std::optional<StorageId> storage_id(const Value& value) {
  const Document* document = value.document();
  const bool is_id = value.kind() == ValueKind::object && value.size() >= 5 &&
                     document->reductions[document->nodes[value.node()].reduction()].call ==
                         Reduction::Call::persistent_id_tuple;
  if (!is_id || value[0].kind() != ValueKind::string || value[0].text() != "storage" ||
      value[2].kind() != ValueKind::string)
    return {};
  const std::string& name = value[1].text();
  const std::string_view storage_class = std::string_view(name).substr(name.rfind('.') + 1);
  const bool is_untyped = storage_class == "UntypedStorage" || storage_class == "_UntypedStorage";
  const auto dtype = is_untyped ? DType::u8 : dtype_from_torch_storage(storage_class);
  const auto elements = value[4].integer();
  int64_t bytes = 0;
  if (!dtype || !elements || *elements < 0 ||
      __builtin_mul_overflow(*elements, size_bytes(*dtype), &bytes)) {
    return {};
  }
  return StorageId{value[2].text(), static_cast<uint64_t>(bytes)};
}

std::vector<uint32_t> reachable_nodes(const Value& value) {
  const Document* document = value.document();
  if (!document) return {};
  std::vector<bool> seen(document->nodes.size(), false);
  std::vector<uint32_t> reached;
  const auto reach = [&](uint32_t node) {
    if (seen.at(node)) return;
    seen[node] = true;
    reached.push_back(node);
  };
  const auto reach_all = [&](ValueNode::Range range) {
    for (uint32_t i = 0; i < range.count; ++i) reach(document->slots[range.begin + i]);
  };
  reach(value.node());
  for (size_t i = 0; i < reached.size(); ++i) {
    const ValueNode& node = document->nodes[reached[i]];
    reach_all(node.items);
    reach_all(node.pairs);
    if (node.has_reduction()) reach_all(document->reductions[node.reduction()].own_arguments);
  }
  return reached;
}

uint32_t* Document::extend(ValueNode::Range& range, bool& owned, size_t more) {
  const uint64_t count = uint64_t{range.count} + more;
  const uint64_t held = !owned ? range.count : range.count == 0 ? 0 : std::bit_ceil(range.count);
  if (count > held) {
    const uint64_t capacity = std::bit_ceil(count);
    const bool is_last = owned && range.begin + held == slots.size();
    const uint64_t begin = is_last ? range.begin : slots.size();
    if (begin + capacity > UINT32_MAX) {
      fail(ErrorKind::exhausted, "a value has more than 2^32 elements in all");
    }
    slots.resize(begin + capacity);
    if (!is_last) std::copy_n(slots.begin() + range.begin, range.count, slots.begin() + begin);
    range.begin = static_cast<uint32_t>(begin);
    owned = true;
  }
  uint32_t* fresh = slots.data() + range.begin + range.count;
  range.count = static_cast<uint32_t>(count);
  return fresh;
}

nlohmann::json to_json(const Value& value, int max_depth) {
  return JsonWriter(max_depth).write(value);
}

}  // namespace ferry
