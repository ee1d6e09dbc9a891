#include "text/sentencepiece/charsmap.h"

#include <algorithm>
#include <cstring>

#include "ckpt/base/error.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

// A unit of the double array.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) == 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& what) {
  if (bytes.empty()) return;
  uint32_t trie_bytes = 0;
  if (bytes.size() > sizeof trie_bytes) std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= bytes.size() - sizeof trie_bytes) {
    fail(ErrorKind::corrupt, "{}: the characters' map of {} bytes says that its trie has {}", what,
         bytes.size(), trie_bytes);
  }
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), bytes.data() + sizeof trie_bytes, trie_bytes);
  texts_ = bytes.substr(sizeof trie_bytes + trie_bytes);
  if (texts_.back() != '\0') {
    fail(ErrorKind::corrupt, "{}: the texts of the characters' map do not end", what);
  }
  if (const size_t good = unicode::well_formed_prefix(texts_); good < texts_.size()) {
    fail(ErrorKind::corrupt, "{}: byte {} of the texts of the characters' map is no UTF-8", what,
         good);
  }
}

bool Charsmap::goes_on(std::string_view text, char byte) const {
  if (units_.empty()) return false;
  size_t node = offset_of(units_[0]);
  const auto step = [&](char character) {
    const auto label = static_cast<unsigned char>(character);
    node ^= label;
    if (node >= units_.size() || label_of(units_[node]) != label) return false;
    node ^= offset_of(units_[node]);
    return true;
  };
  return std::all_of(text.begin(), text.end(), step) && step(byte);
}

Charsmap::Replacement Charsmap::find(std::string_view text, bool longest) const {
  Replacement replacement;
  if (units_.empty()) return replacement;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit) || node >= units_.size()) continue;
    const uint32_t at = value_of(units_[node]);
    if (at < texts_.size() && !unicode::continues(texts_[at]))
      replacement = {i + 1, std::string_view(texts_.data() + at)};
    if (!longest) break;
  }
  return replacement;
}

}  // namespace ferry
