// Fields of a protobuf message, without its schema.
// Source: protobuf.dev, "Encoding".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// Reads the fields of a message one by one. corrupt, with `what` at its start, where the bytes are
/// no message. Both must outlive it.
class ProtobufMessage {
 public:
  ProtobufMessage(std::string_view bytes, const std::string& what) : bytes_(bytes), what_(what) {}

  struct Field {
    uint64_t number = 0;
    enum class Kind : uint8_t { varint, eight_bytes, text, four_bytes } kind = Kind::varint;
    uint64_t value = 0;     // of a varint, or of four or eight bytes
    std::string_view text;  // of a text, bytes or a message
  };
  /// Nothing at the end.
  std::optional<Field> next();

 private:
  [[noreturn]] void refuse(const std::string& problem) const;
  std::string_view take(uint64_t bytes);
  uint64_t varint();
  uint64_t fixed(uint64_t bytes);

  std::string_view bytes_;
  size_t at_ = 0;
  const std::string& what_;
};

}  // namespace ferry
