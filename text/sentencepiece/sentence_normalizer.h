// SentencePiece's normalizer, applied before text is split.
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

// SentencePiece's precompiled normalization: replacements of characters.
// Source: sentencepiece, src/normalizer.cc; the trie is Darts-clone's double array.

class Charsmap {
 public:
  /// Replaces nothing.
  Charsmap() = default;
  /// Parses a file's bytes. corrupt, starting with `what`, if they are not a map or texts are not
  /// UTF-8.
  Charsmap(std::string_view bytes, const std::string& what);

  struct Replacement {
    size_t bytes = 0;  // bytes of text replaced; 0 if there is none
    std::string_view text;
  };
  /// Whether a longer entry starts with `text` and `byte`.
  bool goes_on(std::string_view text, char byte) const;
  /// The replacement of the longest matching prefix of `text`, or the shortest (Hugging Face's
  /// tokenizers).
  Replacement find(std::string_view text, bool longest) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;  // each terminated by a zero
};

inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";  // U+2581

/// User-defined symbols, which are always separate pieces.
class UserSymbols {
 public:
  explicit UserSymbols(const SentencePieceModel& model);
  /// Bytes of the longest that `text` starts with; 0 if none.
  size_t longest_at(std::string_view text) const;
  bool may_begin_with(char byte) const { return begins_[static_cast<unsigned char>(byte)]; }

 private:
  Trie symbols_;
  std::array<bool, 256> begins_{};
};

class SentenceNormalizer {
 public:
  /// `symbols`, which are not changed, may be nullptr, and must outlive this. `what` names the file
  /// in errors: corrupt if the character map is damaged.
  SentenceNormalizer(const SentenceNormalization& normalization, bool whitespace_is_suffix,
                     const UserSymbols* symbols, const std::string& what);

  /// The normalized form of `text`, both UTF-8.
  std::string normalized(std::string_view text) const;

  /// The text that replaces a space.
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
  std::array<bool, 256> plain_{};  // bytes that are not changed
  bool only_ascii_is_plain_;       // and only before ASCII
};

}  // namespace ferry
