// Hand-written splitters for known patterns, and splitters by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/split/splitter.h"
#include "text/unicode/classes.h"

namespace ferry {

// Matches have no gaps, except deepseek's.
std::unique_ptr<const Splitter> make_gpt2_splitter(unicode::Version version);

struct Cl100kOptions {
  int digits = 3;                 // per piece
  bool end_is_whole = false;      // whitespace at the text's end is one piece (cl100k's \s++$)
  bool contractions_fold = true;  // long s (U+017F) counts as s
};
std::unique_ptr<const Splitter> make_cl100k_splitter(unicode::Version version,
                                                     const Cl100kOptions& options);

struct O200kOptions {
  int digits = 3;
  bool contractions = true;  // after words; Tekken has none
};
std::unique_ptr<const Splitter> make_o200k_splitter(unicode::Version version,
                                                    const O200kOptions& options);
std::unique_ptr<const Splitter> make_deepseek_splitter(unicode::Version version);
std::unique_ptr<const Splitter> make_number_splitter(unicode::Version version, int digits);
std::unique_ptr<const Splitter> make_cjk_splitter();
/// \w+|[^\w\s]+ with Rust's \w.
std::unique_ptr<const Splitter> make_word_splitter();

// Other patterns, by PCRE2.

/// `pattern` has PCRE2's syntax. unsupported, starting with `what`, if it cannot be compiled.
/// find() throws exhausted after more steps than any tokenizer's pattern needs. Character
/// properties are those of the library's Unicode version (PCRE2 10.42: Unicode 14).
std::unique_ptr<const Splitter> make_regex_splitter(const std::string& pattern,
                                                    const std::string& what);

// Translation of patterns to PCRE2.

/// A PCRE2 pattern (with UTF and UCP) that matches what `pattern` matches in its own syntax:
/// character classes with && and classes inside, \s \w \h \b, scripts, POSIX classes, the ends of
/// lines, possessive braces. unsupported, starting with `what`, if there is none.
std::string pcre2_pattern(std::string_view pattern, PatternSyntax syntax, const std::string& what);

}  // namespace ferry
