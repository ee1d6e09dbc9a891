#include "text/sentences/punkt_words.h"

#include <algorithm>

#include "text/sentences/python_characters.h"

namespace ferry {
namespace {

using python::is_space;

constexpr std::u32string_view kNumberType = U"##number##";
constexpr std::u32string_view kNoWordCharacters =
    U")\";}]*:@'({[\u2018\u2019\u201C\u201D\u00AB\u00BB?!";
constexpr std::u32string_view kNoWordStart = U"(\"`{[:;&#*@)}]-,";
constexpr std::u32string_view kInnerPunctuation = U";:,.!?";

bool is_one_of(std::u32string_view characters, char32_t c) {
  return characters.find(c) != std::u32string_view::npos;
}

size_t run_length(std::u32string_view text, size_t at, char32_t c) {
  size_t end = at;
  while (end < text.size() && text[end] == c) ++end;
  return end - at;
}

// Characters of a dash (--), an ellipsis (..) or a spaced one (. . .) that begins at `at`; 0: none.
size_t punctuation_length(std::u32string_view text, size_t at) {
  for (const char32_t c : {U'-', U'.'}) {
    if (const size_t length = run_length(text, at, c); length >= 2) return length;
  }
  size_t pairs = 0;
  while (at + 2 * pairs + 1 < text.size() && text[at + 2 * pairs] == '.' &&
         is_space(text[at + 2 * pairs + 1])) {
    ++pairs;
  }
  const size_t end = at + 2 * pairs;
  if (pairs >= 2 && end < text.size() && text[end] == '.') return 2 * pairs + 1;
  return pairs >= 3 ? 2 * pairs - 1 : 0;
}

bool ends_word(std::u32string_view text, size_t at) {
  if (at == text.size() || is_space(text[at]) || is_no_word_character(text[at])) return true;
  if (punctuation_length(text, at) > 0) return true;
  return text[at] == ',' &&
         (at + 1 == text.size() || is_space(text[at + 1]) || is_no_word_character(text[at + 1]) ||
          punctuation_length(text, at + 1) > 0);
}

// Of the word that begins at `at`, where no white space stands.
size_t word_length(std::u32string_view text, size_t at) {
  if (const size_t length = punctuation_length(text, at); length > 0) return length;
  if (is_one_of(kNoWordStart, text[at])) return 1;
  size_t length = 1;
  while (!ends_word(text, at + length)) ++length;
  return length;
}

// -?[.,]?\d[\d,.-]*
bool is_number_text(std::u32string_view text) {
  size_t at = 0;
  if (at < text.size() && text[at] == '-') ++at;
  if (at < text.size() && (text[at] == '.' || text[at] == ',')) ++at;
  if (at == text.size() || !python::is_digit(text[at])) return false;
  return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), [](char32_t c) {
    return python::is_digit(c) || c == ',' || c == '.' || c == '-';
  });
}

PunktWord word_of(std::u32string_view text) {
  PunktWord word{.text = std::u32string(text), .type = python::lower(text)};
  if (is_number_text(word.type)) word.type = kNumberType;
  return word;
}

// What the word alone tells.
void judge_alone(PunktWord& word, const PunktParameters& parameters) {
  const std::u32string& text = word.text;
  if (text.size() == 1 && ends_sentences(text[0])) {
    word.ends_sentence = true;
  } else if (text.size() >= 2 && run_length(text, 0, '.') == text.size()) {
    word.is_ellipsis = true;
  } else if (word.has_period() && !text.ends_with(U"..")) {
    const std::u32string stem = python::lower(std::u32string_view(text).substr(0, text.size() - 1));
    const size_t hyphen = stem.rfind('-');
    const bool is_known = parameters.abbreviations.contains(stem) ||
                          (hyphen != std::u32string::npos &&
                           parameters.abbreviations.contains(stem.substr(hyphen + 1)));
    (is_known ? word.is_abbreviation : word.ends_sentence) = true;
  }
}

enum class Guess : uint8_t { no, yes, unknown };

// Whether a word begins a sentence, by its case and those in which it was met.
Guess begins_sentence(const PunktWord& word, const PunktParameters& parameters) {
  if (word.text.size() == 1 && is_one_of(kInnerPunctuation, word.text[0])) return Guess::no;
  const auto met = parameters.orthography.find(word.type_without_sentence_period());
  const uint32_t context = met == parameters.orthography.end() ? 0 : met->second;
  if (python::is_upper(word.text[0]) && (context & kAnyLower) && !(context & kMiddleUpper)) {
    return Guess::yes;
  }
  if (python::is_lower(word.text[0]) && ((context & kAnyUpper) || !(context & kBeginsLower))) {
    return Guess::no;
  }
  return Guess::unknown;
}

void set_abbreviation(PunktWord& word) {
  word.ends_sentence = false;
  word.is_abbreviation = true;
}

// What a word and the next one tell of the first.
void judge_pair(PunktWord& word, const PunktWord& next, const PunktParameters& parameters) {
  if (!word.has_period()) return;
  const std::u32string type = word.type_without_period();
  const std::u32string next_type = next.type_without_sentence_period();
  if (parameters.collocations.contains({type, next_type})) return set_abbreviation(word);
  const bool is_initial = word.is_initial();
  if ((word.is_abbreviation || word.is_ellipsis) && !is_initial) {
    if (begins_sentence(next, parameters) == Guess::yes ||
        (python::is_upper(next.text[0]) && parameters.sentence_starters.contains(next_type))) {
      word.ends_sentence = true;
      return;
    }
  }
  if (!is_initial && type != kNumberType) return;
  const Guess begins = begins_sentence(next, parameters);
  if (begins == Guess::no) return set_abbreviation(word);
  if (begins != Guess::unknown || !is_initial || !python::is_upper(next.text[0])) return;
  const auto met = parameters.orthography.find(next_type);
  if (met == parameters.orthography.end() || !(met->second & kAnyLower)) set_abbreviation(word);
}

}  // namespace

bool ends_sentences(char32_t c) { return c == '.' || c == '?' || c == '!'; }

bool is_no_word_character(char32_t c) { return is_one_of(kNoWordCharacters, c); }

bool PunktWord::is_initial() const {
  return text.size() == 2 && text[1] == '.' && python::is_word_letter(text[0]);
}

std::u32string PunktWord::type_without_period() const {
  return type.size() > 1 && type.back() == '.' ? type.substr(0, type.size() - 1) : type;
}

std::u32string PunktWord::type_without_sentence_period() const {
  return ends_sentence ? type_without_period() : type;
}

std::vector<PunktWord> punkt_words(std::u32string_view text) {
  std::vector<PunktWord> words;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    const std::u32string_view line = text.substr(0, newline);  // no word goes beyond it
    text.remove_prefix(newline == std::u32string_view::npos ? text.size() : newline + 1);
    if (std::all_of(line.begin(), line.end(), python::is_str_space)) continue;
    for (size_t at = 0; at < line.size();) {
      if (is_space(line[at])) {
        ++at;
        continue;
      }
      const size_t length = word_length(line, at);
      words.push_back(word_of(line.substr(at, length)));
      at += length;
    }
  }
  return words;
}

bool has_sentence_end(std::u32string_view text, const PunktParameters& parameters) {
  std::vector<PunktWord> words = punkt_words(text);
  for (PunktWord& word : words) judge_alone(word, parameters);
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    judge_pair(words[i], words[i + 1], parameters);
    if (words[i].ends_sentence) return true;
  }
  return false;
}

}  // namespace ferry
