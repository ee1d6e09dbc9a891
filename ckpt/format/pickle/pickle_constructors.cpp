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
    {"collections.defaultdict", kDefaultDictConstructor},
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
    {"builtins.bytearray", kByteArrayConstructor},
    {"__builtin__.bytearray", kByteArrayConstructor},
    {"builtins.getattr", kAttribute},
    {"__builtin__.getattr", kAttribute},
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
    position_.corrupt("the keyword arguments of a call are not a dict");
  }
  constexpr auto kCall = Reduction::Call::new_instance;
  if (at(keywords).pairs.count == 0) return construct(callable, args, kCall);
  check_call(callable, args);
  const uint32_t node = object(callable, at(args).items, kCall);
  attach_state(node, keywords, Reduction::Step::Kind::keywords);
  return node;
}

void PickleBuilder::check_call(uint32_t callable, uint32_t args) const {
  // An object may be a method or a nested class, made by getattr.
  const ValueKind kind = at(callable).kind;
  if (kind != ValueKind::global && kind != ValueKind::object) {
    position_.corrupt("something is called that is not a class or function");
  }
  if (at(args).kind != ValueKind::tuple)
    position_.corrupt("the arguments of a call are not a tuple");
}

uint32_t PickleBuilder::construct(uint32_t callable, uint32_t args, Reduction::Call call) {
  check_call(callable, args);
  const Range range = at(args).items;
  switch (this->callable(callable).constructor) {
    case kDictConstructor:
    case kDefaultDictConstructor:
      return make_dict(callable, range);
    case kSetConstructor:
      return make_set(callable, range);
    case kSizeConstructor:
      return make_size(callable, range);
    case kEncodeConstructor:
    case kBytesConstructor:
    case kByteArrayConstructor:
      return make_bytes(callable, range);
    case kAttribute:
      return make_attribute(callable, range);
    case kReconstructor:
      return reconstruct(callable, range);
    case kTensorV1:
    case kTensorV2:
    case kTensorV3: {
      const auto tensor = read_tensor(this->callable(callable).constructor, range);
      return tensor ? add_tensor(*tensor, callable, range) : object(callable, range);
    }
    case kParameter:
      return make_parameter(callable, range);
    case kTensorFromType:
      return make_typed_tensor(callable, range);
    default:
      return object(callable, range, call);
  }
}

uint32_t PickleBuilder::object(uint32_t callable, Range args, Reduction::Call call) {
  charge_sharing(args);
  return add({.kind = ValueKind::object, .text = reduction_of(callable, call), .items = args});
}

// OrderedDict(), defaultdict(factory), Counter(dict), OrderedDict([[key, value], ...])
uint32_t PickleBuilder::make_dict(uint32_t callable, Range args) {
  const auto is_content = [&](uint32_t node) {
    return at(node).kind == ValueKind::dict || at(node).kind == ValueKind::list;
  };
  const bool has_factory = this->callable(callable).constructor == kDefaultDictConstructor &&
                           args.count > 0 && !is_content(slots(args)[0]);
  const uint32_t others = args.count - has_factory;
  if (others > 1 || (others == 1 && !is_content(slots(args)[has_factory]))) {
    return object(callable, args);
  }
  ValueNode empty{.kind = ValueKind::dict, .text = container_reduction(callable)};
  if (has_factory) {
    Reduction reduction = document_->reductions[empty.text];
    reduction.shared = false;
    reduction.own_arguments = {args.begin, 1};
    empty.text = add_reduction(std::move(reduction));
  }
  if (others == 0) return add(empty);
  const uint32_t content = slots(args)[has_factory];
  if (at(content).kind == ValueKind::dict) {
    const uint32_t node = add(empty);
    share_pairs(node, content);
    return node;
  }
  const Range pairs = at(content).items;
  charge_copy(uint64_t{pairs.count} * 2 * sizeof(uint32_t));
  for (uint32_t pair : slots(pairs)) {
    const bool is_pair = (at(pair).kind == ValueKind::list || at(pair).kind == ValueKind::tuple) &&
                         at(pair).items.count == 2;
    if (!is_pair) position_.corrupt("a dict is made from something other than pairs");
  }
  const uint32_t node = add(empty);
  for (uint32_t i = 0; i < pairs.count; ++i) {
    const auto pair = items(at(slots(pairs)[i]));
    const uint32_t key_and_value[] = {pair[0], pair[1]};
    add_pairs(node, key_and_value);
  }
  return node;
}

uint32_t PickleBuilder::make_set(uint32_t callable, Range args) {
  if (args.count > 1) return object(callable, args);
  ValueNode node{.kind = ValueKind::set, .text = container_reduction(callable)};
  if (args.count == 1) {
    const ValueNode& from = at(slots(args)[0]);
    const bool is_sequence = from.kind == ValueKind::list || from.kind == ValueKind::tuple ||
                             from.kind == ValueKind::set;
    if (!is_sequence) return object(callable, args);
    node.items = from.items;
    charge_sharing(node.items);
  }
  return add(node);
}

uint32_t PickleBuilder::make_size(uint32_t callable, Range args) {
  if (args.count > 1) return object(callable, args);
  ValueNode node{.kind = ValueKind::tuple, .text = container_reduction(callable)};
  if (args.count == 1) {
    const ValueNode& from = at(slots(args)[0]);
    if (from.kind != ValueKind::tuple && from.kind != ValueKind::list) {
      return object(callable, args);
    }
    node.items = from.items;
    charge_sharing(node.items);
  }
  return add(node);
}

// How protocols without a bytes opcode spell bytes: latin-1 text and the codec's name.
uint32_t PickleBuilder::make_bytes(uint32_t callable, Range args) {
  const int constructor = this->callable(callable).constructor;
  const bool is_encode = constructor == kEncodeConstructor;
  const auto make = [&](std::string bytes) {
    return constructor == kByteArrayConstructor ? byte_array(std::move(bytes))
                                                : text_node(ValueKind::bytes, std::move(bytes));
  };
  if (args.count == 0) return is_encode ? object(callable, args) : make({});
  const ValueNode& from = at(slots(args)[0]);
  if (args.count == 1 && !is_encode && from.kind == ValueKind::bytes) {
    return add({.kind = ValueKind::bytes,
                .text = from.text,
                .number = constructor == kByteArrayConstructor});
  }
  if (args.count != 2 || from.kind != ValueKind::string) return object(callable, args);
  const auto codec = text_of(slots(args)[1], ValueKind::string);
  if (codec != "latin1" && codec != "latin-1") return object(callable, args);
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
  return make(std::move(bytes));
}

// getattr(class, "name"): how protocols before 4 name a nested class or a member of one.
uint32_t PickleBuilder::make_attribute(uint32_t callable, Range args) {
  if (args.count != 2) return object(callable, args);
  const ValueNode &outer = at(slots(args)[0]), &name = at(slots(args)[1]);
  if (outer.kind != ValueKind::global || name.kind != ValueKind::string) {
    return object(callable, args);
  }
  const std::string& attribute = document_->texts[name.text];
  if (attribute.find('.') != std::string::npos) return object(callable, args);
  const std::string whole = document_->texts[outer.text] + "." + attribute;
  charge_copy(whole.size());
  const auto module_bytes = static_cast<size_t>(outer.number);
  return global(std::string_view(whole).substr(0, module_bytes),
                std::string_view(whole).substr(module_bytes + 1));
}

// (class, base, base's state): how protocols 0 and 1 make instances.
uint32_t PickleBuilder::reconstruct(uint32_t callable, Range args) {
  if (args.count != 3 || at(slots(args)[0]).kind != ValueKind::global) {
    return object(callable, args);
  }
  const bool has_state = at(slots(args)[2]).kind != ValueKind::none;
  const uint32_t reduction = add_reduction({.call = Reduction::Call::function,
                                            .shared = false,
                                            .apart = true,
                                            .text = at(slots(args)[0]).text,
                                            .callable = callable,
                                            .arguments = has_state,
                                            .own_arguments = args,
                                            .steps = {}});
  const Range shown = has_state ? Range{args.begin + 2, 1} : Range{};
  return add({.kind = ValueKind::object, .text = reduction, .items = shown});
}

}  // namespace ferry
