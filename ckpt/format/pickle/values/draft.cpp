#include "ckpt/format/pickle/values/draft.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/base/utf8.h"
#include "ckpt/format/pickle/values/draft_state.h"

namespace ferry {
namespace {

using Kind = ValueKind;
using Step = Reduction::Step;

bool is_number(std::string_view digits, bool hexadecimal) {
  const std::string_view allowed = hexadecimal ? "0123456789abcdefABCDEF" : "0123456789";
  return !digits.empty() && digits.find_first_not_of(allowed) == std::string_view::npos;
}

}  // namespace

Draft::Draft() : state_(std::make_unique<State>()) {}
Draft::~Draft() = default;
Draft::Draft(Draft&&) noexcept = default;
Draft& Draft::operator=(Draft&&) noexcept = default;

Value Draft::none() { return state_->value(State::kNone); }
Value Draft::boolean(bool value) { return state_->value(value ? State::kTrue : State::kFalse); }
Value Draft::integer(int64_t value) {
  return state_->value(state_->add({.kind = Kind::integer, .number = value}));
}
Value Draft::real(double value) {
  const auto bits = std::bit_cast<int64_t>(value);
  return state_->value(state_->add({.kind = Kind::real, .number = bits}));
}

Value Draft::big_integer(std::string_view digits) {
  std::string_view magnitude = digits.substr(digits.starts_with('-') ? 1 : 0);
  const bool hexadecimal = magnitude.starts_with("0x");
  if (hexadecimal) magnitude.remove_prefix(2);
  if (!is_number(magnitude, hexadecimal)) {
    fail(ErrorKind::invalid, "'{}' is not an integer", digits.substr(0, 100));
  }
  const std::string plain = (digits.starts_with('-') ? "-" : "") + std::string(magnitude);
  int64_t value = 0;
  const auto parsed =
      std::from_chars(plain.data(), plain.data() + plain.size(), value, hexadecimal ? 16 : 10);
  if (parsed.ec == std::errc()) return integer(value);
  return state_->value(
      state_->add({.kind = Kind::big_integer, .text = state_->add_text(std::string(digits))}));
}

Value Draft::string(std::string_view utf8) {
  if (utf8_prefix(utf8, true) != utf8.size()) {
    fail(ErrorKind::invalid, "a string of {} bytes is not UTF-8", utf8.size());
  }
  return state_->value(
      state_->add({.kind = Kind::string, .text = state_->add_text(std::string(utf8))}));
}

Value Draft::bytes(std::string_view bytes) {
  return state_->value(
      state_->add({.kind = Kind::bytes, .text = state_->add_text(std::string(bytes))}));
}

Value Draft::list(const std::vector<Value>& items) {
  return state_->container(Kind::list, 0, items);
}
Value Draft::tuple(const std::vector<Value>& items) {
  return state_->container(Kind::tuple, 0, items);
}
Value Draft::set(const std::vector<Value>& items) {
  return state_->container(Kind::set, state_->container_reduction("builtins", "set"), items);
}
Value Draft::dict() { return state_->value(state_->add({.kind = Kind::dict})); }
Value Draft::ordered_dict() {
  const uint32_t reduction = state_->container_reduction("collections", "OrderedDict");
  return state_->value(state_->add({.kind = Kind::dict, .text = reduction}));
}

Value Draft::global(std::string_view module, std::string_view name) {
  return state_->value(state_->global(module, name));
}

Value Draft::global(std::string_view dotted_name) {
  const size_t dot = dotted_name.rfind('.');
  if (dot == std::string_view::npos) {
    fail(ErrorKind::invalid, "'{}' names no module", dotted_name);
  }
  return global(dotted_name.substr(0, dot), dotted_name.substr(dot + 1));
}

Value Draft::call(const Value& callable, const std::vector<Value>& arguments) {
  const uint32_t node = state_->own(callable);
  const Kind kind = state_->value(node).kind();
  if (kind != Kind::global && kind != Kind::object) {
    fail(ErrorKind::invalid, "something is called that is not a class or function");
  }
  return state_->container(Kind::object, state_->reduction_of(node, Reduction::Call::function),
                           arguments);
}

Value Draft::instance(std::string_view dotted_class_name) {
  const uint32_t callable = global(dotted_class_name).node();
  const uint32_t reduction = state_->reduction_of(callable, Reduction::Call::new_instance);
  return state_->value(state_->add({.kind = Kind::object, .text = reduction}));
}

Value Draft::dtype(DType dtype) { return global("torch", torch_name(dtype)); }

Value Draft::size(const Dims& shape) {
  std::vector<Value> items;
  for (const int64_t extent : shape) items.push_back(integer(extent));
  return state_->container(Kind::tuple, state_->container_reduction("torch", "Size"), items);
}

std::string Draft::storage(std::string bytes) {
  const std::string key = storage_of(bytes.size());
  state_->document->storages[key] = std::move(bytes);
  return key;
}

std::string Draft::storage_of(uint64_t bytes) {
  state_->storage_bytes.push_back(bytes);
  return std::to_string(state_->storage_bytes.size() - 1);
}

Value Draft::tensor(DType dtype, const Dims& shape, std::string bytes) {
  const auto needed = checked_multiply(element_count(shape, "tensor"), size_bytes(dtype), "tensor");
  if (static_cast<uint64_t>(needed) != bytes.size()) {
    fail(ErrorKind::invalid, "a tensor of {} {} needs {} bytes and gets {}", torch_name(dtype),
         to_string(shape), needed, bytes.size());
  }
  return tensor_of(storage(std::move(bytes)), dtype, shape);
}

Value Draft::tensor_of(const std::string& storage, DType dtype, const Dims& shape, int64_t offset) {
  size_t number = 0;
  const auto parsed = std::from_chars(storage.data(), storage.data() + storage.size(), number);
  if (parsed.ec != std::errc() || number >= state_->storage_bytes.size()) {
    fail(ErrorKind::invalid, "there is no storage '{}' in this draft", storage);
  }
  StoredTensor tensor;
  tensor.storage_key = storage;
  tensor.dtype = dtype;
  tensor.storage_offset = offset;
  tensor.storage_elements = static_cast<int64_t>(state_->storage_bytes[number]) / size_bytes(dtype);
  tensor.shape = shape;
  tensor.strides = row_major_strides(shape);
  const int64_t last = checked_add(offset, element_count(shape, "tensor"), "tensor");
  if (offset < 0 || last > tensor.storage_elements) {
    fail(ErrorKind::invalid, "a tensor of {} {} from element {} leaves its storage of {} elements",
         torch_name(dtype), to_string(shape), offset, tensor.storage_elements);
  }
  state_->document->tensors.push_back(std::move(tensor));
  const auto index = static_cast<int64_t>(state_->document->tensors.size() - 1);
  return state_->value(state_->add({.kind = Kind::tensor, .number = index}));
}

Value Draft::copy(const Value& value) {
  if (!value.document()) return none();
  return state_->value(state_->copy(value));
}

void Draft::put(const Value& container, std::string_view key, const Value& value) {
  const uint32_t node = state_->own_container(container, {Kind::dict, Kind::object});
  const uint32_t item = state_->own(value);
  if (const auto pair = state_->find_pair(node, key)) return state_->set_pair(node, *pair, item);
  add(container, string(key), value);
}

void Draft::put(const Value& dict, const Value& key, const Value& value) {
  const uint32_t node = state_->own_container(dict, {Kind::dict, Kind::object});
  const uint32_t item = state_->own(value);
  if (const auto pair = state_->find_pair(node, key)) return state_->set_pair(node, *pair, item);
  add(dict, key, value);
}

void Draft::add(const Value& container, std::string_view key, const Value& value) {
  add(container, string(key), value);
}

void Draft::add(const Value& dict, const Value& key, const Value& value) {
  const uint32_t node = state_->own_container(dict, {Kind::dict, Kind::object});
  const uint32_t pair[] = {state_->own(key), state_->own(value)};
  if (dict.kind() == Kind::object) state_->count_attribute(node);
  state_->note_pair(node, pair[0]);
  ValueNode& target = state_->at(node);
  std::copy_n(pair, 2, state_->document->extend(target.pairs, target.owns_pairs, 2));
}

bool Draft::remove(const Value& container, std::string_view key) {
  const uint32_t node = state_->own_container(container, {Kind::dict, Kind::object});
  bool found = false;
  for (size_t i = container.pair_count(); i-- > 0;) {
    const Value each = container.pair_key(i);
    if (each.kind() != Kind::string || each.text() != key) continue;
    state_->remove_pair(node, i);
    found = true;
  }
  return found;
}

void Draft::append(const Value& container, const Value& item) {
  const uint32_t node = state_->own_container(container, {Kind::list, Kind::set, Kind::object});
  const uint32_t added = state_->own(item);
  if (container.kind() == Kind::object) state_->count_item(node);
  ValueNode& target = state_->at(node);
  *state_->document->extend(target.items, target.owns_items, 1) = added;
}

void Draft::replace(const Value& container, size_t index, const Value& item) {
  const uint32_t node =
      state_->own_container(container, {Kind::list, Kind::tuple, Kind::set, Kind::object});
  const bool shown_only = container.kind() == Kind::object && state_->reduction(node).apart;
  if (index >= container.size() || shown_only) {
    fail(ErrorKind::invalid, "element {} of a value that has {} cannot be replaced", index,
         container.size());
  }
  const uint32_t replacement = state_->own(item);
  state_->document->slots[state_->at(node).items.begin + index] = replacement;
}

LoadedValue Draft::finish(const Value& root) && {
  state_->document->root_node = state_->own(root);
  LoadedValue loaded;
  loaded.document = std::move(state_->document);
  loaded.value = loaded.document->root();
  state_ = std::make_unique<State>();
  return loaded;
}

}  // namespace ferry
