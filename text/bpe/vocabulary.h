// A vocabulary: tokens by id, and ids by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

// GPT-2's printable characters for bytes.
// Source: openai/gpt-2, src/encoder.py, bytes_to_unicode().

/// Each byte as its character.
std::string to_byte_level(std::string_view bytes);

/// The bytes of such characters; empty if `text` has another character.
std::optional<std::string> from_byte_level(std::string_view text);

/// A hash of bytes, the same on every machine; not resistant to deliberate collisions.
inline uint64_t hash_of_piece(std::string_view piece) {
  const auto mixed = [](uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t hash = 0x9E3779B97F4A7C15u ^ piece.size();
  const char* at = piece.data();
  size_t left = piece.size();
  uint64_t word = 0;
  for (; left > 8; left -= 8, at += 8) {
    std::memcpy(&word, at, 8);
    hash = mixed(hash ^ word, 0xD6E8FEB86659FD93u);
  }
  word = 0;
  std::memcpy(&word, at, left);
  return mixed(hash ^ word, 0xA0761D6478BD642Fu);
}

class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  /// A known token keeps its id; an id that had a token gets the new text.
  void insert(std::string_view token, int32_t id);
  int32_t find(std::string_view token) const;
  /// Empty for unused ids.
  std::string_view token(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < tokens_.size() ? tokens_[static_cast<size_t>(id)]
                                                               : std::string_view();
  }
  /// One more than the largest id.
  int32_t end() const { return static_cast<int32_t>(tokens_.size()); }
  size_t size() const { return count_; }

 private:
  struct Place {
    uint32_t hash = 0;
    int32_t id = kNone;
  };
  size_t place_of(std::string_view token, uint64_t hash) const;
  void grow();

  std::vector<std::string> tokens_;  // by id
  std::vector<Place> places_;
  size_t count_ = 0;
};

}  // namespace ferry
