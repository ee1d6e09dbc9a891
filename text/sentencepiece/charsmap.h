// SentencePiece's precompiled normalisation: what characters are replaced by.
// Source: sentencepiece, src/normalizer.cc; the trie is Darts-clone's double array.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

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

}  // namespace ferry
