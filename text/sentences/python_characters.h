// What Python's str and the patterns of its package regex say of a character: the sentence splitter
// is written for them.
//
// Source: CPython Objects/unicodeobject.c, unicodectype.c; Unicode PropList.txt.
#pragma once

#include <string>
#include <string_view>

namespace ferry::python {

/// \s: white space of Unicode.
bool is_space(char32_t c);
/// str.isspace(): also the separators U+001C to U+001F.
bool is_str_space(char32_t c);
/// string.whitespace: of ASCII alone.
bool is_ascii_space(char32_t c);
/// str.isupper() and str.islower() of one character.
bool is_upper(char32_t c);
bool is_lower(char32_t c);
/// \d: a decimal digit of any script.
bool is_digit(char32_t c);
/// [^\W\d]: letters, marks and connecting punctuation, but no decimal digit.
bool is_word_letter(char32_t c);

/// str.lower(): of each character, but for the capital sigma at the end of a word and the dotted
/// capital i, which becomes two.
std::u32string lower(std::u32string_view text);

}  // namespace ferry::python
