// What SentencePiece does to a text before it divides it.
// Source: sentencepiece 0.2.3, src/normalizer.cc.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/sentencepiece/model_file.h"
#include "text/trie.h"

namespace ferry {

// SentencePiece's precompiled normalisation: what characters are replaced by.
// Source: sentencepiece, src/normalizer.cc; the trie is Darts-clone's double array.

class Charsmap {
 public:
  /// Nothing is replaced.
  Charsmap() = default;
  /// Of a file's bytes. corrupt, with `what` at its start, where they cannot be one, or where texts
  /// are no UTF-8.
  Charsmap(std::string_view bytes, const std::string& what);

  struct Replacement {
    size_t bytes = 0;  // of the text that it is for; 0 where there is none
    std::string_view text;
  };
  /// Whether an entry for more than `text` begins with `text` and `byte`.
  bool goes_on(std::string_view text, char byte) const;
  /// For the longest beginning of `text`, or the shortest (Hugging Face's tokenizers).
  Replacement find(std::string_view text, bool longest) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;  // each ended by a zero
};

inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";  // U+2581

/// Symbols that users defined: what is always a piece, whatever stands around it.
class UserSymbols {
 public:
  explicit UserSymbols(const SentencePieceModel& model);
  /// Bytes of the longest that `text` begins with; 0 where it begins with none.
  size_t longest_at(std::string_view text) const;
  bool may_begin_with(char byte) const { return begins_[static_cast<unsigned char>(byte)]; }

 private:
  Trie symbols_;
  std::array<bool, 256> begins_{};
};

class SentenceNormalizer {
 public:
  /// `symbols`, which are left as they are, may be nullptr, and must outlive this. `what` names the
  /// file in errors: corrupt where the characters' map is damaged.
  SentenceNormalizer(const SentenceNormalization& normalization, bool whitespace_is_suffix,
                     const UserSymbols* symbols, const std::string& what);

  /// The form of `text`, which is UTF-8, as is the form.
  std::string normalized(std::string_view text) const;

  /// What stands for a space in it.
  std::string_view space() const { return space_; }

 private:
  struct Prefix {
    std::string_view form;
    size_t bytes;  // of the text
  };
  Prefix prefix(std::string_view text) const;
  size_t end_of_plain(std::string_view text, size_t at) const;
  void append(std::string_view form, std::string& to) const;
  void find_plain_bytes();

  SentenceNormalization normalization_;
  bool space_is_suffix_;
  const UserSymbols* symbols_;
  Charsmap map_;
  std::string_view space_;
  std::array<bool, 256> plain_{};  // bytes that stay what they are
  bool only_ascii_is_plain_;       // and before ASCII alone
};

}  // namespace ferry
