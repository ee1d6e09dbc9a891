// Parsed values of what checkpoints store next to tensors: arguments, scheduler, RNG state.
//
// A Document owns all nodes of one parsed pickle in a flat array; a Value is a cheap handle to one
// of them. Shared and cyclic structure is therefore representable, destruction never recurses, and
// a walker must bound its own depth (to_json does).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"

namespace ferry {

enum class ValueKind : uint8_t {
  none,
  boolean,
  integer,
  real,
  big_integer,  // outside 64 bits: `text` holds its decimal digits (or hexadecimal, 0x...)
  string,       // UTF-8
  bytes,        // or a bytearray
  list,
  tuple,   // or a torch.Size
  set,     // or a frozenset
  dict,    // or an OrderedDict, defaultdict, Counter
  global,  // a class or function by name: `text` is "module.name"
  object,  // an instance: `text` is its class or constructor; items are the constructor's
           // arguments, then list items; pairs are its state or dict items, keyed by attribute name
  tensor,  // a tensor whose elements are in a storage of the same archive
};

/// A tensor mentioned by a pickle: a strided view of a storage record of the archive around it.
struct StoredTensor {
  std::string storage_key;  // "0": record <archive>/data/0
  DType dtype = DType::f32;
  int64_t storage_offset = 0;    // elements
  int64_t storage_elements = 0;  // of the whole storage, as the pickle says
  Dims shape;
  Dims strides;  // elements
  MathBits math = {};
};

/// One value of a Document, small because a checkpoint's metadata has hundreds of thousands. What
/// does not fit is in the document's pools. Parsers and Draft write nodes; readers use Value.
struct ValueNode {
  /// Node numbers [begin, begin + count) of Document::slots. Two nodes may share a range.
  struct Range {
    uint32_t begin = 0;
    uint32_t count = 0;
  };

  ValueKind kind = ValueKind::none;
  bool owns_items = false;  // for who builds: `items` is not shared and may grow where it is
  bool owns_pairs = false;
  uint32_t text = 0;   // index into Document::texts: string, bytes, big_integer, global
  int64_t number = 0;  // integer; boolean as 0/1; bits of a real; bytes: 1 for a bytearray; global:
                       // bytes of the module's name; tensor: index into Document::tensors
  Range items{};       // list, tuple, set, object's arguments; a dict's own state, if it has any
  Range pairs{};       // dict, object's state: key, value, key, value ... in order

  // Tuples, sets, dicts, objects and tensors have no text of their own but a reduction.
  bool has_reduction() const noexcept {
    return kind == ValueKind::tuple || kind == ValueKind::set || kind == ValueKind::dict ||
           kind == ValueKind::object || kind == ValueKind::tensor;
  }
  uint32_t reduction() const noexcept { return text; }  // index into Document::reductions
};

/// What pickle calls the reduction of an instance (object.__reduce__): all that a writer needs,
/// besides its content, to make it again. Nodes made alike share one.
struct Reduction {
  enum class Call : uint8_t {
    literal,              // by the opcodes of its kind
    function,             // callable(*arguments). A tuple's or set's one argument is its items
    new_instance,         // class.__new__(class, *arguments)
    persistent_id,        // what the archive around the pickle stores under an identifier
    persistent_id_tuple,  // the same; the identifier is a tuple, its items the arguments
  };
  /// Something done to it afterwards, with the next `count` of its items or pairs.
  struct Step {
    enum class Kind : uint8_t {
      keywords,     // pairs: keyword arguments of the call
      items,        // items: appended to it, a list
      pairs,        // pairs: set in it, a dict
      state,        // pairs: a dict that becomes its state
      attributes,   // pairs: a dict, of a pair of dicts ...
      slots,        // pairs: ... that becomes its state; the first is None without `attributes`
      other_state,  // one pair: its value, anything, becomes its state
    };
    Kind kind = Kind::state;
    uint32_t count = 0;
  };
  static constexpr uint32_t kRest = UINT32_MAX;  // as a count: all that are left

  Call call = Call::literal;
  bool shared = true;          // by several nodes: who changes one of them makes its own
  bool apart = false;          // the arguments are not among the node's items but `own_arguments`
  uint32_t text = 0;           // of the class or function: index into Document::texts
  uint32_t callable = 0;       // node of the class or function
  uint32_t arguments = kRest;  // leading items that are arguments
  ValueNode::Range own_arguments{};
  std::vector<Step> steps;
};

class Document;

class Value {
 public:
  Value() = default;  // none, of no document
  Value(const Document* document, uint32_t node) : document_(document), node_(node) {}

  ValueKind kind() const noexcept;
  bool is_none() const noexcept { return kind() == ValueKind::none; }
  explicit operator bool() const noexcept { return !is_none(); }

  // Typed access: nothing when the value is of another kind. Integers answer real(), booleans
  // answer integer(); an enum object answers integer()/string() with its value.
  std::optional<bool> boolean() const;
  std::optional<int64_t> integer() const;
  std::optional<double> real() const;
  std::optional<std::string_view> string() const;  // string, or bytes that are UTF-8 text
  /// Raw text of the node, or the class or constructor of an object or of a container that is no
  /// plain one ("collections.OrderedDict"); empty when there is neither.
  const std::string& text() const;
  const StoredTensor* tensor() const;

  /// Elements of a list, tuple or set, or an object's arguments. A dict that carries state of its
  /// own (attributes of an OrderedDict) has that state, a dict, as its only element.
  size_t size() const noexcept;
  Value operator[](size_t index) const;  // none when out of range

  /// Entries of a dict or an object's state, in order.
  size_t pair_count() const noexcept;
  Value pair_key(size_t index) const;
  Value pair_value(size_t index) const;

  /// Value under a string key of a dict, or an object's attribute; none when absent.
  Value get(std::string_view key) const;
  bool has(std::string_view key) const;

  const Document* document() const noexcept { return document_; }
  uint32_t node() const noexcept { return node_; }

 private:
  const ValueNode& data() const noexcept;

  const Document* document_ = nullptr;
  uint32_t node_ = 0;
};

/// Owner of the nodes and of the pools that they point into.
class Document : public std::enable_shared_from_this<Document> {
 public:
  Value root() const { return root_at(root_node); }
  Value root_at(uint32_t node) const { return Value(this, node); }

  /// For who builds it: room for `more` slots at the end of `range`, which moves to the end of the
  /// pool when it is not `owned` or has no room left; its old slots stay, for others that share
  /// them. Its capacity is the next power of two of its count. Valid until the next call.
  uint32_t* extend(ValueNode::Range& range, bool& owned, size_t more);

  std::vector<ValueNode> nodes;
  std::vector<uint32_t> slots;
  std::vector<std::string> texts = std::vector<std::string>(1);  // 0 is empty
  std::vector<StoredTensor> tensors;
  std::vector<Reduction> reductions = std::vector<Reduction>(1);  // 0 is a literal
  std::map<std::string, std::string, std::less<>> storages;  // by key: bytes, where they are held
  uint32_t root_node = 0;
};

/// A value together with the document that owns it.
struct LoadedValue {
  std::shared_ptr<const Document> document;
  Value value;  // none when document is null
};

/// What the archive around a pickle stores under ("storage", class, key, location, elements).
struct StorageId {
  std::string_view key;
  uint64_t bytes = 0;
};
/// Nothing when the value is no such persistent id, or one of a class that is unknown here.
std::optional<StorageId> storage_id(const Value& value);

/// All nodes that can be reached from a value, itself first, each once; arguments of constructors
/// that are not shown as its items included.
std::vector<uint32_t> reachable_nodes(const Value& value);

/// JSON of a value for people and scripts: an object becomes {"__class__": name, attributes...},
/// an enum or path its value, a tensor {"dtype", "shape"}, bytes {"bytes": n}; a value nested
/// deeper than `max_depth`, met again on its own path, or past the first million values (shared
/// structure can be exponentially large when written out) becomes "...". Non-string keys are
/// printed; what is not UTF-8 in a string is replaced.
nlohmann::json to_json(const Value& value, int max_depth = 32);

}  // namespace ferry
