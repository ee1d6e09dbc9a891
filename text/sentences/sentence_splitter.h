// Divides text into sentences as Punkt does, the splitter that Megatron-LM's preprocess_data.py
// uses: candidates are . ? and !, of which what was learned of a language tells which end a
// sentence.
//
// Source: NLTK 3.10, nltk/tokenize/punkt.py (PunktSentenceTokenizer); tools/preprocess_data.py of
// Megatron-LM (Encoder.split, CustomLanguageVars).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/sentences/punkt_parameters.h"

namespace ferry {

/// Safe from several threads.
class SentenceSplitter {
 public:
  /// `keep_newlines`: white space behind a sentence stays with it, as with preprocess_data.py's
  /// option of that name; otherwise it belongs to none.
  SentenceSplitter(PunktParameters parameters, bool keep_newlines)
      : parameters_(std::move(parameters)), keep_newlines_(keep_newlines) {}

  /// Adds the sentences of `text`, well-formed UTF-8, in order: parts of it. As there, a text of
  /// more than 1,000,000 characters is cut every so many first.
  void split(std::string_view text, std::vector<std::string_view>& sentences) const;

 private:
  PunktParameters parameters_;
  bool keep_newlines_;
};

}  // namespace ferry
