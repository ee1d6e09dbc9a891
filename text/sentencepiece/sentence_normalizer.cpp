#include "text/sentencepiece/sentence_normalizer.h"

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
    fail(ErrorKind::corrupt, "{}: the character map of {} bytes claims a trie of {} bytes", what,
         bytes.size(), trie_bytes);
  }
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), bytes.data() + sizeof trie_bytes, trie_bytes);
  texts_ = bytes.substr(sizeof trie_bytes + trie_bytes);
  if (texts_.back() != '\0') {
    fail(ErrorKind::corrupt, "{}: the texts of the character map are not terminated", what);
  }
  if (const size_t good = unicode::well_formed_prefix(texts_); good < texts_.size()) {
    fail(ErrorKind::corrupt, "{}: byte {} of the texts of the character map is not UTF-8", what,
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

UserSymbols::UserSymbols(const SentencePieceModel& model) {
  std::vector<std::pair<std::string_view, int32_t>> symbols;
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type != SentencePiece::Type::user_defined) continue;
    symbols.emplace_back(piece.text, 0);
    begins_[static_cast<unsigned char>(piece.text[0])] = true;
  }
  symbols_ = Trie(std::move(symbols));
}

size_t UserSymbols::longest_at(std::string_view text) const {
  if (text.empty() || !may_begin_with(text[0])) return 0;
  size_t longest = 0;
  symbols_.prefixes(text, [&](size_t bytes, int32_t) { longest = bytes; });
  return longest;
}

SentenceNormalizer::SentenceNormalizer(const SentenceNormalization& normalization,
                                       bool whitespace_is_suffix, const UserSymbols* symbols,
                                       const std::string& what)
    : normalization_(normalization),
      space_is_suffix_(whitespace_is_suffix),
      symbols_(symbols),
      map_(normalization.charsmap, what),
      space_(normalization.escape_whitespaces ? kEscapedSpace : std::string_view(" ")),
      only_ascii_is_plain_(!normalization.charsmap.empty()) {
  find_plain_bytes();
}

// The map has sequences of characters: bytes are unchanged if no entry starts with them, or none
// that continues with ASCII.
void SentenceNormalizer::find_plain_bytes() {
  for (size_t byte = 0; byte < plain_.size(); ++byte) {
    const char character = static_cast<char>(byte);
    const bool is_symbol = symbols_ != nullptr && symbols_->may_begin_with(character);
    plain_[byte] = character != ' ' && !is_symbol;
    if (!only_ascii_is_plain_ || !plain_[byte]) continue;
    plain_[byte] = byte < 0x80;
    for (int next = 0; next < 0x80 && plain_[byte]; ++next) {
      const char both[] = {character, static_cast<char>(next)};
      plain_[byte] = !map_.goes_on({both, 1}, both[1]) && map_.find({both, 2}, true).bytes == 0;
    }
  }
}

size_t SentenceNormalizer::end_of_plain(std::string_view text, size_t at) const {
  const size_t begin = at;
  while (at < text.size() && plain_[static_cast<unsigned char>(text[at])]) ++at;
  // The last one may belong to the following text.
  const bool may_combine = only_ascii_is_plain_ && at > begin && at < text.size() &&
                           (static_cast<unsigned char>(text[at]) & 0x80) != 0;
  return may_combine ? at - 1 : at;
}

SentenceNormalizer::Prefix SentenceNormalizer::prefix(std::string_view text) const {
  if (symbols_ != nullptr) {
    if (const size_t bytes = symbols_->longest_at(text); bytes > 0) {
      return {text.substr(0, bytes), bytes};
    }
  }
  const Charsmap::Replacement replacement = map_.find(text, true);
  const bool ends_inside = replacement.bytes < text.size() &&
                           unicode::continues(text[replacement.bytes]);  // not in a valid map
  if (replacement.bytes > 0 && !ends_inside) return {replacement.text, replacement.bytes};
  const size_t bytes = unicode::character_at(text.data()).bytes;
  return {text.substr(0, bytes), bytes};
}

void SentenceNormalizer::append(std::string_view form, std::string& to) const {
  for (const char byte : form) {
    if (byte == ' ') {
      to += space_;
    } else {
      to += byte;
    }
  }
}

std::string SentenceNormalizer::normalized(std::string_view text) const {
  const bool removes = normalization_.remove_extra_whitespaces;
  std::string result;
  while (removes && !text.empty()) {
    const Prefix first = prefix(text);
    if (first.form != " ") break;
    text.remove_prefix(first.bytes);
  }
  if (text.empty()) return result;
  result.reserve(text.size() + text.size() / 2);
  if (!space_is_suffix_ && normalization_.add_dummy_prefix) result += space_;
  bool after_space = removes;
  for (size_t at = 0; at < text.size();) {
    const size_t end = end_of_plain(text, at);
    if (end > at) {
      result.append(text, at, end - at);
      after_space = false;
      at = end;
      continue;
    }
    auto [form, bytes] = prefix(text.substr(at));
    at += bytes;
    while (after_space && form.starts_with(' ')) form.remove_prefix(1);
    if (!form.empty()) {
      append(form, result);
      after_space = form.ends_with(' ');
    }
    after_space = after_space && removes;
  }
  while (removes && result.ends_with(space_)) result.resize(result.size() - space_.size());
  if (space_is_suffix_ && normalization_.add_dummy_prefix) result += space_;
  return result;
}

}  // namespace ferry
