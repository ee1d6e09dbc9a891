#include "ckpt/core/draft.h"

#include <bit>

namespace ferry {

DraftValue DraftValue::of_boolean(bool value) {
  DraftValue draft;
  draft.kind = ValueKind::boolean;
  draft.integer = value ? 1 : 0;
  return draft;
}

DraftValue DraftValue::of_integer(int64_t value) {
  DraftValue draft;
  draft.kind = ValueKind::integer;
  draft.integer = value;
  return draft;
}

DraftValue DraftValue::of_real(double value) {
  DraftValue draft;
  draft.kind = ValueKind::real;
  draft.real = value;
  return draft;
}

DraftValue DraftValue::of_string(std::string_view value) {
  DraftValue draft;
  draft.kind = ValueKind::string;
  draft.text = value;
  return draft;
}

std::shared_ptr<const Document> make_document(const std::vector<DraftValue>& values) {
  auto document = std::make_shared<Document>();
  document->nodes.reserve(values.size() + 1);
  for (const DraftValue& draft : values) {
    ValueNode node;
    node.kind = draft.kind;
    node.number =
        draft.kind == ValueKind::real ? std::bit_cast<int64_t>(draft.real) : draft.integer;
    if (!draft.text.empty()) {
      node.text = static_cast<uint32_t>(document->texts.size());
      document->texts.push_back(draft.text);
    }
    const auto slot = [&] { return static_cast<uint32_t>(document->slots.size()); };
    node.items = {slot(), static_cast<uint32_t>(draft.items.size())};
    document->slots.insert(document->slots.end(), draft.items.begin(), draft.items.end());
    node.pairs = {slot(), static_cast<uint32_t>(2 * draft.pairs.size())};
    for (const auto& [key, value] : draft.pairs) {
      document->slots.push_back(key);
      document->slots.push_back(value);
    }
    document->nodes.push_back(node);
  }
  if (values.empty()) document->nodes.emplace_back();
  return document;
}

bool draft_scalar(const Value& value, DraftValue* draft) {
  switch (value.kind()) {
    case ValueKind::none:
      *draft = {};
      return true;
    case ValueKind::boolean:
      *draft = DraftValue::of_boolean(*value.boolean());
      return true;
    case ValueKind::integer:
      *draft = DraftValue::of_integer(*value.integer());
      return true;
    case ValueKind::real:
      *draft = DraftValue::of_real(*value.real());
      return true;
    case ValueKind::string:
      *draft = DraftValue::of_string(value.text());
      return true;
    default:
      return false;
  }
}

}  // namespace ferry
