// How ranks put numbers and texts into the bytes that they exchange.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "ckpt/base/digest.h"
#include "ckpt/base/error.h"

namespace ferry {

class Packer {
 public:
  /// Seven bits a byte, the lowest first, and no more bytes than it takes: most numbers are small.
  Packer& number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  Packer& digest(const Digest& digest) { return eight_bytes(digest.high).eight_bytes(digest.low); }
  Packer& text(std::string_view text) {
    number(text.size());
    bytes_.append(text);
    return *this;
  }
  /// For an enum without negative values.
  template <typename Enum>
  Packer& choice(Enum value) {
    return number(static_cast<uint64_t>(value));
  }
  std::string take() { return std::move(bytes_); }

 private:
  Packer& eight_bytes(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(value >> shift));
    return *this;
  }

  std::string bytes_;
};

/// Reads what a Packer wrote, which must outlive it. Another rank wrote it: corrupt when it ends
/// before what is read, or holds what no Packer wrote.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(next(1)[0]);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte >= 0x80) continue;
      const bool is_long = shift > 0 && (byte == 0 || (shift == 63 && byte > 1));
      if (is_long) break;
      return value;
    }
    fail_unreadable("has a bad number");
  }
  Digest digest() {
    const uint64_t high = eight_bytes();
    return {high, eight_bytes()};
  }
  std::string text() { return std::string(text_view()); }
  /// As long as what is read from.
  std::string_view text_view() { return next(number()); }
  /// A number of things that follow, each of at least so many bytes (a number has 1, a text 1, a
  /// digest 16).
  uint64_t count(uint64_t least_bytes = 1) {
    const uint64_t count = number();
    if (count > rest_.size() / least_bytes) fail_short();
    return count;
  }
  /// A value of an enum that begins with 0 and has no gaps up to `last`.
  template <typename Enum>
  Enum choice(Enum last) {
    const uint64_t value = number();
    if (value > static_cast<uint64_t>(last)) fail_unreadable("has a bad value");
    return static_cast<Enum>(value);
  }
  ErrorKind error_kind() { return choice(ErrorKind::cancelled); }
  /// All has been read.
  void finish() const {
    if (!rest_.empty()) fail_unreadable("goes on after its end");
  }

 private:
  uint64_t eight_bytes() {
    const std::string_view bytes = next(8);
    uint64_t value = 0;
    for (size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  std::string_view next(uint64_t bytes) {
    if (bytes > rest_.size()) fail_short();
    const std::string_view part = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return part;
  }
  [[noreturn]] static void fail_short() { fail_unreadable("ends early"); }
  [[noreturn]] static void fail_unreadable(std::string_view why) {
    fail(ErrorKind::corrupt, "another rank's message {}; do all run the same release?", why);
  }

  std::string_view rest_;
};

}  // namespace ferry
