#include "tests/fuzz/protobuf_fields.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/protobuf.h"

namespace ferry::test {
namespace {

using Field = ProtobufMessage::Field;

struct OwnField {
  uint64_t number;
  Field::Kind kind;
  uint64_t value;
  std::string text;
};

std::vector<OwnField> fields_of(const std::string& message) {
  std::vector<OwnField> fields;
  const std::string what = "a message";
  ProtobufMessage reader(message, what);
  try {
    while (const auto field = reader.next()) {
      fields.push_back({field->number, field->kind, field->value, std::string(field->text)});
    }
  } catch (const Error&) {
    return {};
  }
  return fields;
}

void append_varint(uint64_t value, std::string& message) {
  for (; value > 0x7F; value >>= 7) message += static_cast<char>(value | 0x80);
  message += static_cast<char>(value);
}

void append_field(const OwnField& field, std::string& message) {
  static constexpr uint64_t kWireTypes[] = {0, 1, 2, 5};
  append_varint(field.number << 3 | kWireTypes[static_cast<size_t>(field.kind)], message);
  if (field.kind == Field::Kind::varint) {
    append_varint(field.value, message);
  } else if (field.kind == Field::Kind::text) {
    append_varint(field.text.size(), message);
    message += field.text;
  } else {
    const size_t bytes = field.kind == Field::Kind::eight_bytes ? 8 : 4;
    message.append(reinterpret_cast<const char*>(&field.value), bytes);
  }
}

uint64_t edge_number(Random& random) {
  static constexpr uint64_t kEdges[] = {0,          1,          2,          3,          4,
                                        5,          6,          7,          127,        0x7F800000,
                                        0xFF800000, 0x7FC00000, 0x80000000, 0xC2C80000, 0x461C4000,
                                        UINT64_MAX, INT64_MAX,  0xFFFFFFFF, 1 << 20};
  return random.pick(kEdges);
}

void change_bytes(std::string& text, Random& random) {
  static const std::vector<std::string> kTexts = {"",
                                                  "a",
                                                  " ",
                                                  std::string(1, '\0'),
                                                  "\xE2\x96\x81",
                                                  "\xE2\x96\x81\xE2\x96\x81",
                                                  "the",
                                                  "\xFF",
                                                  "<0x41>",
                                                  "<s>",
                                                  "<unk>",
                                                  std::string(9000, 'a'),
                                                  "ab",
                                                  "a\xE2\x96\x81",
                                                  "\n"};
  const size_t at = random.below(text.size() + 1);
  switch (random.below(4)) {
    case 0:
      text = random.pick(kTexts);
      break;
    case 1:
      text.insert(at, random.pick(kTexts));
      break;
    case 2:
      text.erase(at, 1 + random.below(4));
      break;
    default:
      if (at < text.size()) text[at] = static_cast<char>(random.next());
  }
}

void change_field(OwnField& field, Random& random, int depth) {
  constexpr int kDeepest = 3;
  if (random.one_in(10)) {
    field.number = 1 + random.below(50);
  } else if (random.one_in(20)) {
    field.kind = static_cast<Field::Kind>(random.below(4));
  } else if (field.kind != Field::Kind::text) {
    field.value = random.one_in(2) ? edge_number(random) : field.value + random.below(5) - 2;
  } else if (depth < kDeepest && !random.one_in(4)) {
    field.text = changed_message(field.text, random, depth + 1);
  } else {
    change_bytes(field.text, random);
  }
}

}  // namespace

std::string changed_message(const std::string& message, Random& random, int depth) {
  std::vector<OwnField> fields = fields_of(message);
  if (fields.empty() || random.one_in(30)) {
    std::string bytes = message;
    change_bytes(bytes, random);
    return bytes;
  }
  const size_t at = random.below(fields.size()), other = random.below(fields.size());
  switch (random.below(10)) {
    case 0:
      fields.erase(fields.begin() + static_cast<ptrdiff_t>(at));
      break;
    case 1:
      fields.push_back(OwnField(fields[at]));
      break;
    case 2:
      std::swap(fields[at], fields[other]);
      break;
    case 3:
      fields.push_back({1 + random.below(50), Field::Kind::varint, edge_number(random), ""});
      break;
    case 4:  // what is not a piece: few fields after many
      change_field(fields[fields.size() - 1 - random.below(std::min<size_t>(3, fields.size()))],
                   random, depth);
      break;
    default:
      change_field(fields[at], random, depth);
  }
  std::string changed;
  for (const OwnField& field : fields) append_field(field, changed);
  if (random.one_in(40)) changed.resize(random.below(changed.size() + 1));
  return changed;
}

}  // namespace ferry::test
