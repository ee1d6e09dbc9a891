// The splitters that are written by hand, by the patterns that they are for.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/split/splitter.h"
#include "text/unicode/classes.h"

namespace ferry {

// Each covers every text without a gap, except deepseek.
std::unique_ptr<const Splitter> make_gpt2_splitter(unicode::Version version);

struct Cl100kOptions {
  int digits = 3;                 // of a piece
  bool end_is_whole = false;      // whitespace at the text's end is one piece (cl100k's \s++$)
  bool contractions_fold = true;  // long s (U+017F) counts as s
};
std::unique_ptr<const Splitter> make_cl100k_splitter(unicode::Version version,
                                                     const Cl100kOptions& options);

struct O200kOptions {
  int digits = 3;
  bool contractions = true;  // behind words; Tekken has none
};
std::unique_ptr<const Splitter> make_o200k_splitter(unicode::Version version,
                                                    const O200kOptions& options);
std::unique_ptr<const Splitter> make_deepseek_splitter(unicode::Version version);
std::unique_ptr<const Splitter> make_number_splitter(unicode::Version version, int digits);
std::unique_ptr<const Splitter> make_cjk_splitter();
/// \w+|[^\w\s]+ with Rust's words.
std::unique_ptr<const Splitter> make_word_splitter();

// Patterns that are not written by hand, by PCRE2.

/// `pattern` is PCRE2's own. unsupported, with `what` at its start, when it cannot be compiled. Its
/// find() is exhausted after so many steps that no pattern of a tokenizer needs them. Properties of
/// characters are those of the library's Unicode (PCRE2 10.42: Unicode 14).
std::unique_ptr<const Splitter> make_regex_splitter(const std::string& pattern,
                                                    const std::string& what);

// Patterns of the peers' regular expressions as patterns of PCRE2.

/// The pattern that matches in PCRE2 (with UTF and UCP) what `pattern` does in its own program:
/// character classes with && and classes inside, \s \w \h \b, scripts, POSIX classes, the ends of
/// lines, braces with a possessive sign. unsupported, with `what` at its start, where there is
/// no such pattern.
std::string pcre2_pattern(std::string_view pattern, PatternSyntax syntax, const std::string& what);

}  // namespace ferry
