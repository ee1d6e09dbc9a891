#include "text/sentences/python_characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace ferry::python {
namespace {

struct PointRange {
  char32_t first, last;
};

// Characters that are upper or lower case without being letters of that category: Other_Uppercase
// and Other_Lowercase.
constexpr PointRange kOtherUpper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
constexpr PointRange kOtherLower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
    {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x10FC, 0x10FC},
    {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},
    {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F2, 0xA7F4},
    {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},   {0xAB69, 0xAB69},   {0x10780, 0x10780},
    {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x1E030, 0x1E06D}};

constexpr PointRange kCircledLetters[] = {
    {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

template <size_t N>
bool is_in(const PointRange (&ranges)[N], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [c](const PointRange& one) { return c >= one.first && c <= one.last; });
}

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || category_of(c) == UTF8PROC_CATEGORY_LT;
}

// What stands between a letter and the end of its word without being looked at.
bool is_case_ignorable(char32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::u32string_view(U"'.:^`\u00AF\u00B7\u0387\u2018\u2019\u2024\u2027").find(c) !=
             std::u32string_view::npos;
  }
}

bool ends_a_word(std::u32string_view text, size_t at) {
  size_t before = at, behind = at + 1;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  while (behind < text.size() && is_case_ignorable(text[behind])) ++behind;
  return before > 0 && is_cased(text[before - 1]) &&
         (behind == text.size() || !is_cased(text[behind]));
}

}  // namespace

bool is_space(char32_t c) {
  return is_ascii_space(c) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_str_space(char32_t c) { return is_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_ascii_space(char32_t c) { return (c >= 0x09 && c <= 0x0D) || c == 0x20; }

bool is_upper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return category_of(c) == UTF8PROC_CATEGORY_LU || is_in(kOtherUpper, c);
}

bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return category_of(c) == UTF8PROC_CATEGORY_LL || is_in(kOtherLower, c);
}

bool is_digit(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_ND; }

bool is_word_letter(char32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // circled letters, and what joins letters
      return is_in(kCircledLetters, c) || c == 0x200C || c == 0x200D;
  }
}

std::u32string lower(std::u32string_view text) {
  std::u32string lowered;
  lowered.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    if (c == 0x130) {
      lowered += U"i\u0307";
    } else if (c == 0x3A3) {
      lowered += ends_a_word(text, i) ? U'\u03C2' : U'\u03C3';
    } else {
      lowered += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
    }
  }
  return lowered;
}

}  // namespace ferry::python
