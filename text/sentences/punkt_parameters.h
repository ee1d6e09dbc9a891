// What Punkt learned of a language: the files of a folder of NLTK's punkt_tab, or of its
// save_punkt_params().
//
// Source: NLTK 3.10, nltk/tokenize/punkt.py and nltk/tabdata.py.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ckpt/io/file_system.h"

namespace ferry {

struct PunktParameters {
  std::unordered_set<std::u32string> abbreviations;  // without their last period
  std::unordered_set<std::u32string> sentence_starters;
  std::set<std::pair<std::u32string, std::u32string>> collocations;
  /// In which places a word was met with which case: sums of OrthographicContext.
  std::unordered_map<std::u32string, uint32_t> orthography;
};

enum OrthographicContext : uint32_t {
  kBeginsUpper = 1 << 1,
  kMiddleUpper = 1 << 2,
  kUnknownUpper = 1 << 3,
  kBeginsLower = 1 << 4,
  kMiddleLower = 1 << 5,
  kUnknownLower = 1 << 6,
  kAnyUpper = kBeginsUpper | kMiddleUpper | kUnknownUpper,
  kAnyLower = kBeginsLower | kMiddleLower | kUnknownLower
};

/// Reads abbrev_types.txt, sent_starters.txt, collocations.tab and ortho_context.tab. not_found
/// when one is missing; corrupt, with file and line, for what is none of their lines.
PunktParameters read_punkt_parameters(const FileSystem& file_system, const std::string& folder);

/// Well-formed UTF-8 as characters.
std::u32string characters_of(std::string_view text);

}  // namespace ferry
