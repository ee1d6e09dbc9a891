#include "ckpt/format/pickle/values/plain_value.h"

#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"

namespace ferry {
namespace {

constexpr int kDeepest = 64;
constexpr int64_t kMostValues = 1 << 22;  // shared structure is written out

class Plain {
 public:
  Value copy(const Value& value, int depth) {
    if (depth > kDeepest) return draft_.none();
    if (++copied_ > kMostValues) {
      fail(ErrorKind::exhausted, "an object of more than {} values, counting shared ones as often",
           kMostValues);
    }
    switch (value.kind()) {
      case ValueKind::list:
      case ValueKind::tuple:
      case ValueKind::set:
        return copy_items(value, depth);
      case ValueKind::dict:
        return copy_pairs(value, draft_.dict(), depth);
      case ValueKind::object:
        return copy_object(value, depth);
      case ValueKind::global:
        return value.text().starts_with("torch.") ? draft_.copy(value)
                                                  : draft_.string(value.text());
      case ValueKind::tensor:
        return copy_tensor(value);
      default:
        return draft_.copy(value);
    }
  }

  LoadedValue finish(const Value& root) && { return std::move(draft_).finish(root); }

 private:
  Value copy_items(const Value& value, int depth) {
    std::vector<Value> items;
    items.reserve(value.size());
    for (size_t i = 0; i < value.size(); ++i) items.push_back(copy(value[i], depth + 1));
    if (value.kind() == ValueKind::list) return draft_.list(items);
    return value.kind() == ValueKind::tuple ? draft_.tuple(items) : draft_.set(items);
  }

  // Not on the device that it was on, which where it is loaded there may be none of.
  Value copy_tensor(const Value& value) {
    const StoredTensor& tensor = *value.tensor();
    const auto& storages = value.document()->storages;
    const auto held = storages.find(tensor.storage_key);
    const bool is_whole = tensor.storage_offset == 0 &&
                          tensor.strides == row_major_strides(tensor.shape) &&
                          tensor.storage_elements == element_count(tensor.shape, "tensor");
    if (held == storages.end() || !is_whole || tensor.math.any()) return draft_.copy(value);
    return draft_.tensor(tensor.dtype, tensor.shape, held->second);
  }

  Value copy_pairs(const Value& value, const Value& to, int depth) {
    for (size_t i = 0; i < value.pair_count(); ++i) {
      const Value key = value.pair_key(i), inner = copy(value.pair_value(i), depth + 1);
      if (to.kind() == ValueKind::object) {
        if (key.string()) draft_.put(to, *key.string(), inner);
      } else {
        draft_.put(to, copy(key, depth + 1), inner);
      }
    }
    return to;
  }

  Value copy_object(const Value& value, int depth) {
    constexpr std::string_view kNamespace = "argparse.Namespace";
    if (value.text() == kNamespace) return copy_pairs(value, draft_.instance(kNamespace), depth);
    if (value.size() == 1 && value.pair_count() == 0) return copy(value[0], depth + 1);
    return draft_.string(value.text());
  }

  Draft draft_;
  int64_t copied_ = 0;
};

}  // namespace

LoadedValue plain_value(const Value& value) {
  Plain plain;
  const Value root = plain.copy(value, 0);
  return std::move(plain).finish(root);
}

}  // namespace ferry
