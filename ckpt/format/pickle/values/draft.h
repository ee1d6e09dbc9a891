// Values made by hand or changed: every way to a Document but parsing.
//
//   Draft draft;
//   Value args = draft.copy(loaded.value);                       // a parsed value, to be changed
//   draft.put(args, "tensor_model_parallel_size", draft.integer(2));
//   Value state = draft.dict();
//   draft.put(state, "args", args);
//   LoadedValue result = std::move(draft).finish(state);
//
// The values that a draft hands out are read like any others, and may be used in several places:
// what is shared stays shared when it is written. Containers may hold themselves, and may nest
// deeper than the stack: nothing here recurses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// A document under construction. Wherever a method takes a Value, one of another document is
/// copied in first (copy()). One thread at a time. Values that it handed out are valid as long as
/// the draft, then as long as the document that finish() gives.
class Draft {
 public:
  Draft();
  ~Draft();
  Draft(Draft&&) noexcept;
  Draft& operator=(Draft&&) noexcept;

  // New values.
  Value none();
  Value boolean(bool value);
  Value integer(int64_t value);
  Value big_integer(std::string_view digits);  // decimal or 0x..., may be negative
  Value real(double value);
  Value string(std::string_view utf8);
  Value bytes(std::string_view bytes);
  Value list(const std::vector<Value>& items = {});
  Value tuple(const std::vector<Value>& items = {});
  Value set(const std::vector<Value>& items = {});
  Value dict();
  Value ordered_dict();  // collections.OrderedDict

  /// A class or function. In a dotted name, the part after the last dot is its own
  /// ("torch.float32").
  Value global(std::string_view module, std::string_view name);
  Value global(std::string_view dotted_name);

  /// callable(*arguments): an enum member is call(global("megatron.core.enums.ModelType"), {1}).
  Value call(const Value& callable, const std::vector<Value>& arguments);
  /// An instance without constructor arguments, to get attributes with put()
  /// ("argparse.Namespace").
  Value instance(std::string_view dotted_class_name);

  Value dtype(DType dtype);       // torch.float32
  Value size(const Dims& shape);  // torch.Size

  /// A row-major tensor with these elements (little-endian) in a storage of its own; invalid when
  /// their length is not that of the shape.
  Value tensor(DType dtype, const Dims& shape, std::string bytes);
  /// A row-major tensor from element `offset` of a storage that this draft made.
  Value tensor_of(const std::string& storage, DType dtype, const Dims& shape, int64_t offset = 0);
  /// Storages, for tensors that share one, or whose elements are written later, straight into the
  /// file (torch_archive_writer.h). They are numbered "0", "1", ...
  std::string storage(std::string bytes);
  std::string storage_of(uint64_t bytes);

  /// A deep copy of a value of any document, of what can be reached from it. Parts that its
  /// document shares stay shared, also over several calls when a shared_ptr owns it (the draft then
  /// keeps it alive). exhausted when a hostile document would grow far beyond its own size.
  Value copy(const Value& value);

  // Changes. `container` must be of this draft and of a kind that allows it; invalid otherwise.
  /// Value under a key of a dict, or an attribute of an object: the place of an old one is kept.
  void put(const Value& container, std::string_view key, const Value& value);
  void put(const Value& dict, const Value& key, const Value& value);
  /// The same, without looking whether the key is there: it must not be. For large dicts.
  void add(const Value& container, std::string_view key, const Value& value);
  void add(const Value& dict, const Value& key, const Value& value);
  /// False when there was none.
  bool remove(const Value& container, std::string_view key);
  /// To a list or set, or to an object that is a list.
  void append(const Value& container, const Value& item);
  /// Element of a list, tuple or set, or argument of an object; invalid when out of range.
  void replace(const Value& container, size_t index, const Value& item);

  /// The document with `root` as its root; the draft is empty afterwards.
  LoadedValue finish(const Value& root) &&;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ferry
