// The character classes used by tokenizers' patterns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace ferry::unicode {

enum CharacterClass : uint8_t {
  kLetter = 1,        // \p{L}
  kNumber = 2,        // \p{N}
  kSpace = 4,         // \s
  kMark = 8,          // \p{M}
  kUpperLike = 16,    // \p{Lu} \p{Lt} \p{Lm} \p{Lo} \p{M}
  kLowerLike = 32,    // \p{Ll} \p{Lm} \p{Lo} \p{M}
  kSymbol = 64,       // \p{S}
  kPunctuation = 128  // \p{P}
};

/// Unicode versions.
enum class Version : uint8_t {
  v16,  // as tokenizers 0.23 (Oniguruma) and tiktoken 0.14 (Rust's regex) have them
  v18   // as Python's regex 2026.11 has them
};

/// The classes of every character, U+0000 to U+10FFFF.
const uint8_t* character_classes(Version version);

/// \w as Rust's regex has it: letters, digits, marks, connectors and joiners (Unicode Technical
/// Standard 18, Annex C).
bool is_word(char32_t point);

// Lookup in sorted ranges of characters.

/// The range that contains the character; null if there is none.
template <typename Range, size_t kCount>
const Range* range_of(const Range (&ranges)[kCount], char32_t point) {
  const auto* found =
      std::upper_bound(std::begin(ranges), std::end(ranges), point,
                       [](char32_t value, const Range& range) { return value <= range.last; });
  return found != std::end(ranges) && found->first <= point ? found : nullptr;
}

}  // namespace ferry::unicode
