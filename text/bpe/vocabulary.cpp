#include "text/bpe/vocabulary.h"

#include <array>
#include <cstdint>

#include "text/unicode/utf8.h"

namespace ferry {

namespace {

constexpr char32_t kCharacters = 0x144;  // 0x100 and the 68 bytes that are not printable

struct ByteLevel {
  std::array<char32_t, 256> characters{};
  std::array<int16_t, kCharacters> bytes{};
};

constexpr ByteLevel make_byte_level() {
  ByteLevel level;
  level.bytes.fill(-1);
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
    const char32_t character = printable ? byte : next++;
    level.characters[byte] = character;
    level.bytes[character] = static_cast<int16_t>(byte);
  }
  return level;
}

constexpr ByteLevel kByteLevel = make_byte_level();

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    unicode::append(text, kByteLevel.characters[static_cast<unsigned char>(byte)]);
  }
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const unicode::Character character = unicode::character_at(text.data() + at);
    at += character.bytes;
    if (character.point >= kCharacters || kByteLevel.bytes[character.point] < 0) return {};
    bytes += static_cast<char>(kByteLevel.bytes[character.point]);
  }
  return bytes;
}

size_t Vocabulary::place_of(std::string_view token, uint64_t hash) const {
  const size_t mask = places_.size() - 1;
  size_t at = hash >> 32 & mask;
  while (places_[at].id != kNone && (places_[at].hash != static_cast<uint32_t>(hash) ||
                                     tokens_[static_cast<size_t>(places_[at].id)] != token)) {
    at = (at + 1) & mask;
  }
  return at;
}

int32_t Vocabulary::find(std::string_view token) const {
  return places_.empty() ? kNone : places_[place_of(token, hash_of_piece(token))].id;
}

void Vocabulary::insert(std::string_view token, int32_t id) {
  if (2 * (count_ + 1) > places_.size()) grow();
  const uint64_t hash = hash_of_piece(token);
  const size_t at = place_of(token, hash);
  if (places_[at].id != kNone) return;
  if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = token;
  places_[at] = {static_cast<uint32_t>(hash), id};
  ++count_;
}

void Vocabulary::grow() {
  std::vector<Place> before(places_.empty() ? 1024 : 2 * places_.size());
  before.swap(places_);
  for (const Place& place : before) {
    if (place.id == kNone) continue;
    const std::string& token = tokens_[static_cast<size_t>(place.id)];
    places_[place_of(token, hash_of_piece(token))] = place;
  }
}

}  // namespace ferry
