#include "ckpt/base/protobuf.h"

#include <fmt/format.h>

#include "ckpt/base/error.h"

namespace ferry {

void ProtobufMessage::refuse(const std::string& problem) const {
  fail(ErrorKind::corrupt, "{}: byte {} of a message of {}: {}", what_, at_, bytes_.size(),
       problem);
}

std::string_view ProtobufMessage::take(uint64_t bytes) {
  if (bytes > bytes_.size() - at_) {
    refuse(fmt::format("a field of {} bytes goes past the end", bytes));
  }
  const std::string_view taken = bytes_.substr(at_, bytes);
  at_ += bytes;
  return taken;
}

uint64_t ProtobufMessage::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    value |= uint64_t{byte & 0x7FU} << shift;
    if ((byte & 0x80) == 0) return value;
  }
  refuse("a number is longer than ten bytes");
}

uint64_t ProtobufMessage::fixed(uint64_t bytes) {
  uint64_t value = 0;
  int shift = 0;
  for (const char byte : take(bytes)) {
    value |= uint64_t{static_cast<unsigned char>(byte)} << shift;
    shift += 8;
  }
  return value;
}

std::optional<ProtobufMessage::Field> ProtobufMessage::next() {
  if (at_ == bytes_.size()) return std::nullopt;
  const uint64_t key = varint();
  Field field;
  field.number = key >> 3;
  switch (key & 7) {
    case 0:
      field.value = varint();
      return field;
    case 1:
      field.kind = Field::Kind::eight_bytes;
      field.value = fixed(8);
      return field;
    case 2:
      field.kind = Field::Kind::text;
      field.text = take(varint());
      return field;
    case 5:
      field.kind = Field::Kind::four_bytes;
      field.value = fixed(4);
      return field;
    default:
      refuse(fmt::format("a field is of wire type {}, which no such file has", key & 7));
  }
}

}  // namespace ferry
