// Tensors of a pickle, with the constructor calls that they were made by.
#include "ckpt/base/checked.h"
#include "ckpt/format/pickle/pickle_builder.h"
#include "ckpt/format/pickle/pickle_constructors.h"

namespace ferry {
namespace {

// PyTorch refuses more dimensions than this.
constexpr uint32_t kMostDimensions = 64;

std::string_view last_part(std::string_view dotted) {
  return dotted.substr(dotted.rfind('.') + 1);  // npos + 1 is 0
}

}  // namespace

uint32_t PickleBuilder::tensor(int64_t number, uint32_t callable, Range args) {
  const uint32_t reduction = add_reduction({.call = Reduction::Call::function,
                                            .shared = false,
                                            .apart = true,
                                            .text = callable_text(callable),
                                            .callable = callable,
                                            .own_arguments = args,
                                            .steps = {}});
  return add({.kind = ValueKind::tensor, .text = reduction, .number = number});
}

uint32_t PickleBuilder::add_tensor(StoredTensor tensor, uint32_t callable, Range args) {
  document_->tensors.push_back(std::move(tensor));
  return this->tensor(static_cast<int64_t>(document_->tensors.size() - 1), callable, args);
}

// (tensor, requires_grad, hooks[, state])
uint32_t PickleBuilder::make_parameter(uint32_t callable, Range args) {
  const bool is_tensor = args.count > 0 && at(slots(args)[0]).kind == ValueKind::tensor;
  return is_tensor ? tensor(at(slots(args)[0]).number, callable, args) : object(callable, args);
}

// (function, type, arguments, state)
uint32_t PickleBuilder::make_typed_tensor(uint32_t callable, Range args) {
  if (args.count != 4) return object(callable, args);
  const uint32_t function = slots(args)[0], inner = slots(args)[2];
  if (at(function).kind != ValueKind::global || at(inner).kind != ValueKind::tuple) {
    return object(callable, args);
  }
  const int how = this->callable(function).constructor;
  if (how != kTensorV1 && how != kTensorV2 && how != kTensorV3) return object(callable, args);
  const auto stored = read_tensor(how, at(inner).items);
  return stored ? add_tensor(*stored, callable, args) : object(callable, args);
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

// A tensor's metadata: {"conj": True, "neg": True} of views, where they are so.
MathBits PickleBuilder::math_bits(uint32_t metadata) const {
  MathBits bits;
  if (at(metadata).kind != ValueKind::dict) return bits;
  const auto pairs = slots(at(metadata).pairs);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const auto key = text_of(pairs[i], ValueKind::string);
    const ValueNode& value = at(pairs[i + 1]);
    const bool is_set = value.kind == ValueKind::boolean && value.number != 0;
    if (key == "conj") bits.conjugated = is_set;
    if (key == "neg") bits.negated = is_set;
  }
  return bits;
}

// _rebuild_tensor(storage, offset, shape, stride); _v2 adds (requires_grad, hooks[, metadata]); _v3
// has dtype before the metadata, for types that have no storage class. The storage is the
// persistent id
// ("storage", class, key, location, elements).
std::optional<StoredTensor> PickleBuilder::read_tensor(int constructor, Range args) {
  const auto a = slots(args);
  const size_t dtype_at = 6;
  if (a.size() < 4 || (constructor == kTensorV3 && a.size() <= dtype_at)) {
    position_.corrupt("a tensor is made from too few arguments");
  }
  const ValueNode& storage = at(a[0]);
  const auto id = items(storage);
  const bool is_storage =
      storage.kind == ValueKind::object &&
      document_->reductions[storage.reduction()].call == Reduction::Call::persistent_id_tuple &&
      id.size() >= 5 && text_of(id[0], ValueKind::string) == "storage";
  const auto class_name = is_storage ? text_of(id[1], ValueKind::global) : std::nullopt;
  const auto key = is_storage ? text_of(id[2], ValueKind::string) : std::nullopt;
  if (!class_name || !key) return std::nullopt;
  const std::string_view storage_class = last_part(*class_name);
  const bool is_untyped = storage_class == "UntypedStorage" || storage_class == "_UntypedStorage";
  const auto storage_dtype = is_untyped ? DType::u8 : dtype_from_torch_storage(storage_class);
  auto dtype = storage_dtype;
  if (constructor == kTensorV3) {
    const auto name = text_of(a[dtype_at], ValueKind::global);
    dtype = name ? dtype_from_torch(last_part(*name)) : std::nullopt;
  }
  if (!dtype || !storage_dtype) return std::nullopt;

  StoredTensor tensor;
  tensor.dtype = *dtype;
  tensor.storage_key = *key;
  tensor.storage_elements = checked_multiply(non_negative(id[4], "storage size"),
                                             size_bytes(*storage_dtype), position_.what) /
                            size_bytes(*dtype);
  tensor.storage_offset = non_negative(a[1], "storage offset");
  tensor.shape = make_dims(a[2]);
  tensor.strides = make_dims(a[3]);
  if (tensor.shape.size() != tensor.strides.size()) {
    position_.corrupt("a tensor's shape and strides have different lengths");
  }
  const size_t metadata_at = constructor == kTensorV3 ? dtype_at + 1 : dtype_at;
  if (constructor != kTensorV1 && a.size() > metadata_at) {
    const ValueNode& metadata = at(a[metadata_at]);
    charge_copy(uint64_t{metadata.pairs.count} * sizeof(uint32_t));
    tensor.math = math_bits(a[metadata_at]);
  }
  charge_copy(sizeof tensor + tensor.storage_key.size() +
              2 * sizeof(int64_t) * tensor.shape.size());
  return tensor;
}

PickleBuilder::Callable& PickleBuilder::callable(uint32_t node) {
  const auto [found, is_new] = callables_.try_emplace(node);
  if (is_new && at(node).kind == ValueKind::global) {
    found->second.constructor = pickle_constructor(document_->texts[at(node).text]);
  }
  return found->second;
}

uint32_t PickleBuilder::add_reduction(Reduction reduction) {
  document_->reductions.push_back(std::move(reduction));
  return static_cast<uint32_t>(document_->reductions.size() - 1);
}

// Text of what is called: of an object (a method) that of its own constructor.
uint32_t PickleBuilder::callable_text(uint32_t node) const {
  return at(node).kind == ValueKind::global ? at(node).text
                                            : document_->reductions[at(node).reduction()].text;
}

uint32_t PickleBuilder::reduction_of(uint32_t node, Reduction::Call call) {
  Callable& known = callable(node);
  uint32_t& reduction = call == Reduction::Call::function ? known.function : known.new_instance;
  if (reduction == 0) {
    reduction = add_reduction({.call = call,
                               .text = callable_text(node),
                               .callable = node,
                               .own_arguments = {},
                               .steps = {}});
  }
  return reduction;
}

uint32_t PickleBuilder::container_reduction(uint32_t node) {
  uint32_t& reduction = callable(node).container;
  if (reduction == 0) {
    reduction = add_reduction({.call = Reduction::Call::function,
                               .apart = true,
                               .text = callable_text(node),
                               .callable = node,
                               .own_arguments = {},
                               .steps = {}});
  }
  return reduction;
}

uint32_t PickleBuilder::persistent_reduction(bool is_tuple) {
  uint32_t& reduction = persistent_reductions_[is_tuple];
  if (reduction == 0) {
    const auto call =
        is_tuple ? Reduction::Call::persistent_id_tuple : Reduction::Call::persistent_id;
    reduction = add_reduction(
        {.call = call, .text = add_text("persistent_id"), .own_arguments = {}, .steps = {}});
  }
  return reduction;
}

uint32_t PickleBuilder::with_state(uint32_t reduction) {
  if (reduction >= stated_.size()) stated_.resize(document_->reductions.size(), 0);
  if (stated_[reduction] == 0) {
    Reduction stated = document_->reductions[reduction];
    stated.steps = {{Reduction::Step::Kind::state, Reduction::kRest}};
    stated_[reduction] = add_reduction(std::move(stated));
  }
  return stated_[reduction];
}

// To be called before the node gets what the step says.
void PickleBuilder::add_step(uint32_t node, Reduction::Step::Kind kind, size_t count) {
  ValueNode& target = document_->nodes[node];
  if (document_->reductions[target.reduction()].shared) {
    Reduction own = document_->reductions[target.reduction()];
    own.shared = false;
    for (Reduction::Step& step : own.steps) {
      if (step.count == Reduction::kRest) step.count = target.pairs.count / 2;
    }
    target.text = add_reduction(std::move(own));
  }
  Reduction& reduction = document_->reductions[target.reduction()];
  const bool of_items = kind == Reduction::Step::Kind::items;
  if (of_items && reduction.arguments == Reduction::kRest) reduction.arguments = target.items.count;
  const bool goes_on = (of_items || kind == Reduction::Step::Kind::pairs) &&
                       !reduction.steps.empty() && reduction.steps.back().kind == kind;
  if (!goes_on) reduction.steps.push_back({kind, 0});
  reduction.steps.back().count += static_cast<uint32_t>(count);
}

}  // namespace ferry
