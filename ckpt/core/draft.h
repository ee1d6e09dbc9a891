// Values made by hand: for parsers of small text formats, and for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/value.h"

namespace ferry {

/// A value under construction. Other values are named by their position among all drafts.
struct DraftValue {
  ValueKind kind = ValueKind::none;
  int64_t integer = 0;  // or boolean as 0/1
  double real = 0;
  std::string text;                                  // string, global, object's class
  std::vector<uint32_t> items;                       // list, tuple, set
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  // dict, object's attributes

  static DraftValue of_boolean(bool value);
  static DraftValue of_integer(int64_t value);
  static DraftValue of_real(double value);
  static DraftValue of_string(std::string_view value);
};

/// The document of these values; the first is its root. Kinds with a text of their own and no items
/// (big_integer, bytes, global) are supported, tensors are not.
std::shared_ptr<const Document> make_document(const std::vector<DraftValue>& values);

/// Draft of `value`, one level deep: scalars as they are; nothing for containers.
bool draft_scalar(const Value& value, DraftValue* draft);

}  // namespace ferry
