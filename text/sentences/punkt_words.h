// A stretch of text as Punkt's words, each with what is decided of it.
//
// Source: NLTK 3.10, nltk/tokenize/punkt.py (PunktLanguageVars, PunktToken); Kiss and Strunk,
// "Unsupervised Multilingual Sentence Boundary Detection" (2006).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/sentences/punkt_parameters.h"

namespace ferry {

/// A character that ends sentences: . ? !
bool ends_sentences(char32_t c);
/// A character that words do not have in them: quotes, brackets, and ? ! but no period.
bool is_no_word_character(char32_t c);

struct PunktWord {
  std::u32string text;
  std::u32string type;  // in lower case, "##number##" for numbers
  bool ends_sentence = false, is_abbreviation = false, is_ellipsis = false;

  bool has_period() const { return text.ends_with(U'.'); }
  bool is_initial() const;
  bool is_number() const;
  /// The type without its last period: always, or where the word ends a sentence.
  std::u32string type_without_period() const;
  std::u32string type_without_sentence_period() const;
};

/// The words of `text`, in order.
std::vector<PunktWord> punkt_words(std::u32string_view text);

/// Whether a sentence ends within `text`, before its last word.
bool has_sentence_end(std::u32string_view text, const PunktParameters& parameters);

}  // namespace ferry
