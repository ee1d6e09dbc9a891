#include "ckpt/format/pickle/pickle_constructors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/utf8.h"
#include "ckpt/format/pickle/pickle_builder.h"

namespace ferry {
namespace {

constexpr std::pair<std::string_view, PickleConstructor> kConstructors[] = {
    {"collections.OrderedDict", kDictConstructor},
    {"collections.defaultdict", kDictConstructor},
    {"collections.Counter", kDictConstructor},
    {"builtins.dict", kDictConstructor},
    {"__builtin__.dict", kDictConstructor},
    {"builtins.set", kSetConstructor},
    {"__builtin__.set", kSetConstructor},
    {"builtins.frozenset", kSetConstructor},
    {"__builtin__.frozenset", kSetConstructor},
    {"torch.Size", kSizeConstructor},
    {"_codecs.encode", kEncodeConstructor},
    {"builtins.bytes", kBytesConstructor},
    {"__builtin__.bytes", kBytesConstructor},
    {"builtins.bytearray", kBytesConstructor},
    {"__builtin__.bytearray", kBytesConstructor},
    {"copyreg._reconstructor", kReconstructor},
    {"copy_reg._reconstructor", kReconstructor},
    {"torch._utils._rebuild_tensor", kTensorV1},
    {"torch._utils._rebuild_tensor_v2", kTensorV2},
    {"torch._utils._rebuild_tensor_v3", kTensorV3},
    {"torch._utils._rebuild_parameter", kParameter},
    {"torch._utils._rebuild_parameter_with_state", kParameter},
    {"torch._tensor._rebuild_from_type_v2", kTensorFromType},
    {"torch.tensor._rebuild_from_type_v2", kTensorFromType},
};

// PyTorch refuses more dimensions than this.
constexpr uint32_t kMostDimensions = 64;

std::string_view last_part(std::string_view dotted) {
  return dotted.substr(dotted.rfind('.') + 1);  // npos + 1 is 0
}

}  // namespace

PickleConstructor pickle_constructor(std::string_view name) noexcept {
  for (const auto& [known, constructor] : kConstructors) {
    if (known == name) return constructor;
  }
  return kUnknownConstructor;
}

uint32_t PickleBuilder::construct_with_keywords(uint32_t callable, uint32_t args,
                                                uint32_t keywords) {
  if (at(keywords).kind != ValueKind::dict) {
    position_.corrupt("the keyword arguments of a call are no dict");
  }
  if (at(keywords).pairs.count == 0) return construct(callable, args);
  check_call(callable, args);
  const uint32_t node = object(callable, at(args).items);
  attach_state(node, keywords);
  return node;
}

void PickleBuilder::check_call(uint32_t callable, uint32_t args) const {
  // An object may be a method or a nested class, made by getattr.
  const ValueKind kind = at(callable).kind;
  if (kind != ValueKind::global && kind != ValueKind::object) {
    position_.corrupt("something is called that is no class or function");
  }
  if (at(args).kind != ValueKind::tuple) position_.corrupt("the arguments of a call are no tuple");
}

uint32_t PickleBuilder::construct(uint32_t callable, uint32_t args) {
  check_call(callable, args);
  const Range range = at(args).items;
  if (at(callable).kind != ValueKind::global) return object(callable, range);
  const int64_t constructor = at(callable).number;
  switch (constructor) {
    case kDictConstructor:
      return make_dict(callable, range);
    case kSetConstructor:
      return make_set(callable, range);
    case kSizeConstructor:
      return make_size(callable, range);
    case kEncodeConstructor:
    case kBytesConstructor:
      return make_bytes(callable, range);
    case kReconstructor:
      return reconstruct(callable, range);
    case kTensorV1:
    case kTensorV2:
    case kTensorV3:
      return make_tensor(callable, static_cast<int>(constructor), range);
    case kParameter:
      if (range.count > 0 && at(slots(range)[0]).kind == ValueKind::tensor) return slots(range)[0];
      return object(callable, range);
    case kTensorFromType: {  // (function, type, arguments, state)
      if (range.count != 4) return object(callable, range);
      const uint32_t function = slots(range)[0], inner = slots(range)[2];
      const int64_t how = at(function).kind == ValueKind::global ? at(function).number : 0;
      const bool is_tensor = how == kTensorV1 || how == kTensorV2 || how == kTensorV3;
      if (!is_tensor || at(inner).kind != ValueKind::tuple) return object(callable, range);
      return make_tensor(function, static_cast<int>(how), at(inner).items);
    }
    default:
      return object(callable, range);
  }
}

uint32_t PickleBuilder::object(uint32_t callable, Range args) {
  return shared(ValueKind::object, at(callable).text, args);
}

// OrderedDict(), defaultdict(factory), Counter(dict), OrderedDict([[key, value], ...])
uint32_t PickleBuilder::make_dict(uint32_t callable, Range args) {
  if (args.count > 2) return object(callable, args);
  for (uint32_t argument : slots(args)) {
    const ValueKind kind = at(argument).kind;
    const uint32_t text = at(callable).text;
    if (kind == ValueKind::dict) {
      const uint32_t node = shared(ValueKind::dict, text, {});
      attach_state(node, argument);
      return node;
    }
    if (kind != ValueKind::list) continue;
    const Range pairs = at(argument).items;
    charge_copy(uint64_t{pairs.count} * 2 * sizeof(uint32_t));
    for (uint32_t pair : slots(pairs)) {
      const bool is_pair =
          (at(pair).kind == ValueKind::list || at(pair).kind == ValueKind::tuple) &&
          at(pair).items.count == 2;
      if (!is_pair) position_.corrupt("a dict is made from something other than pairs");
    }
    const uint32_t node = shared(ValueKind::dict, text, {});
    for (uint32_t i = 0; i < pairs.count; ++i) {
      const auto pair = items(at(slots(pairs)[i]));
      const uint32_t key_and_value[] = {pair[0], pair[1]};
      set_items(node, key_and_value);
    }
    return node;
  }
  return shared(ValueKind::dict, at(callable).text, {});
}

uint32_t PickleBuilder::make_set(uint32_t callable, Range args) {
  if (args.count == 0) return container(ValueKind::set);
  const ValueNode& from = at(slots(args)[0]);
  const bool is_sequence =
      from.kind == ValueKind::list || from.kind == ValueKind::tuple || from.kind == ValueKind::set;
  if (args.count != 1 || !is_sequence) return object(callable, args);
  return shared(ValueKind::set, 0, from.items);
}

uint32_t PickleBuilder::make_size(uint32_t callable, Range args) {
  if (args.count == 0) return kEmptyTuple;
  const uint32_t from = slots(args)[0];
  if (args.count == 1 && at(from).kind == ValueKind::tuple) return from;
  if (args.count == 1 && at(from).kind == ValueKind::list) {
    return shared(ValueKind::tuple, 0, at(from).items);
  }
  return object(callable, args);
}

// How protocols without a bytes opcode spell bytes: latin-1 text and the codec's name.
uint32_t PickleBuilder::make_bytes(uint32_t callable, Range args) {
  const bool is_encode = at(callable).number == kEncodeConstructor;
  if (args.count == 0 && !is_encode) return text_node(ValueKind::bytes, {});
  if (args.count == 0) return object(callable, args);
  const ValueNode& from = at(slots(args)[0]);
  if (args.count == 1 && !is_encode && from.kind == ValueKind::bytes) {
    return add({.kind = ValueKind::bytes, .text = from.text});
  }
  if (args.count != 2 || from.kind != ValueKind::string) return object(callable, args);
  const ValueNode& codec = at(slots(args)[1]);
  const std::string& codec_name = document_->texts[codec.text];
  if (codec.kind != ValueKind::string || (codec_name != "latin1" && codec_name != "latin-1")) {
    return object(callable, args);
  }
  const std::string& text = document_->texts[from.text];
  charge_copy(text.size());
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<uint8_t>(text[i]);
    if (lead < 0x80) {
      bytes += text[i];
    } else if (lead <= 0xC3) {  // U+0080 to U+00FF; the text is known to be UTF-8
      bytes += static_cast<char>(lead << 6 | (static_cast<uint8_t>(text[++i]) & 0x3F));
    } else {
      position_.corrupt("bytes are spelled with a character that is not latin-1");
    }
  }
  return text_node(ValueKind::bytes, std::move(bytes));
}

// (class, base, base's state): how protocols 0 and 1 make instances.
uint32_t PickleBuilder::reconstruct(uint32_t callable, Range args) {
  if (args.count != 3 || at(slots(args)[0]).kind != ValueKind::global) {
    return object(callable, args);
  }
  const uint32_t state = slots(args)[2];
  const Range none{};
  const Range only_state{args.begin + 2, 1};
  return shared(ValueKind::object, at(slots(args)[0]).text,
                at(state).kind == ValueKind::none ? none : only_state);
}

int64_t PickleBuilder::non_negative(uint32_t node, std::string_view what) const {
  if (at(node).kind != ValueKind::integer || at(node).number < 0) {
    position_.corrupt(std::string("the ") + std::string(what) +
                      " of a tensor is not a number of elements");
  }
  return at(node).number;
}

Dims PickleBuilder::make_dims(uint32_t node) const {
  const ValueKind kind = at(node).kind;
  if (kind != ValueKind::tuple && kind != ValueKind::list) {
    position_.corrupt("the shape or stride of a tensor is not a tuple");
  }
  if (at(node).items.count > kMostDimensions) {
    position_.corrupt("a tensor has more dimensions than PyTorch allows");
  }
  Dims dims;
  dims.reserve(at(node).items.count);
  for (uint32_t item : items(at(node))) dims.push_back(non_negative(item, "shape or stride"));
  return dims;
}

// _rebuild_tensor(storage, offset, shape, stride); _v2 adds (requires_grad, hooks[, metadata]); _v3
// adds dtype after hooks, for types that have no storage class. The storage is the persistent id
// ("storage", class, key, location, elements).
uint32_t PickleBuilder::make_tensor(uint32_t callable, int constructor, Range args) {
  const auto a = slots(args);
  const size_t dtype_at = 6;
  if (a.size() < 4 || (constructor == kTensorV3 && a.size() <= dtype_at)) {
    position_.corrupt("a tensor is made from too few arguments");
  }
  const ValueNode& storage = at(a[0]);
  const auto text = [&](uint32_t node) {
    return std::string_view(document_->texts[at(node).text]);
  };
  const auto id = items(storage);
  const bool is_storage = storage.kind == ValueKind::object && storage.number == kPersistentId &&
                          id.size() >= 5 && text(id[0]) == "storage" &&
                          at(id[1]).kind == ValueKind::global &&
                          at(id[2]).kind == ValueKind::string;
  if (!is_storage) return object(callable, args);
  const std::string_view storage_class = last_part(text(id[1]));
  const bool is_untyped = storage_class == "UntypedStorage" || storage_class == "_UntypedStorage";
  const auto storage_dtype = is_untyped ? DType::u8 : dtype_from_torch_storage(storage_class);
  auto dtype = storage_dtype;
  if (constructor == kTensorV3) {
    const bool is_name = at(a[dtype_at]).kind == ValueKind::global;
    dtype = is_name ? dtype_from_torch(last_part(text(a[dtype_at]))) : std::nullopt;
  }
  if (!dtype || !storage_dtype) return object(callable, args);

  StoredTensor tensor;
  tensor.dtype = *dtype;
  tensor.storage_key = text(id[2]);
  tensor.storage_elements = checked_multiply(non_negative(id[4], "storage size"),
                                             size_bytes(*storage_dtype), position_.what) /
                            size_bytes(*dtype);
  tensor.storage_offset = non_negative(a[1], "storage offset");
  tensor.shape = make_dims(a[2]);
  tensor.strides = make_dims(a[3]);
  if (tensor.shape.size() != tensor.strides.size()) {
    position_.corrupt("a tensor's shape and strides have different lengths");
  }
  charge_copy(sizeof tensor + tensor.storage_key.size() +
              2 * sizeof(int64_t) * tensor.shape.size());
  document_->tensors.push_back(std::move(tensor));
  return add(
      {.kind = ValueKind::tensor, .number = static_cast<int64_t>(document_->tensors.size() - 1)});
}

}  // namespace ferry
