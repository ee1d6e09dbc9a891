// How ranks put numbers and texts into the bytes that they exchange.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ckpt/base/error.h"

namespace ferry {

class Packer {
 public:
  Packer& number(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(value >> shift));
    return *this;
  }
  Packer& text(std::string_view text) {
    number(text.size());
    bytes_.append(text);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what a Packer wrote, which must outlive it; corrupt when it ends before.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  uint64_t number() {
    const std::string_view bytes = next(8);
    uint64_t value = 0;
    for (size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  std::string text() { return std::string(next(number())); }
  /// A number of things that follow, each of at least one byte.
  uint64_t count() {
    const uint64_t count = number();
    if (count > rest_.size()) fail_short();
    return count;
  }

 private:
  std::string_view next(uint64_t bytes) {
    if (bytes > rest_.size()) fail_short();
    const std::string_view part = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return part;
  }
  [[noreturn]] static void fail_short() {
    fail(ErrorKind::corrupt, "another rank's message ends early; do all run the same release?");
  }

  std::string_view rest_;
};

}  // namespace ferry
