// Splits text into pieces whose borders no token crosses.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ferry {

/// Bytes from the start of a text.
struct Match {
  size_t begin = 0, end = 0;
};

/// A regular expression.
class Splitter {
 public:
  virtual ~Splitter() = default;
  /// The first match at or after `from`, a character boundary; {size, size} if there is none.
  /// `text` is UTF-8. Thread-safe. exhausted if matching takes too long.
  virtual Match find(std::string_view text, size_t from) const = 0;
};

/// Syntax of a pattern: Hugging Face's tokenizers (Oniguruma) or tiktoken (Rust).
enum class PatternSyntax { oniguruma, rust };

/// Makes a splitter for `pattern`: hand-written for those of published tokenizers, otherwise by
/// PCRE2. unsupported, starting with `what`, if it cannot be compiled.
std::unique_ptr<const Splitter> make_splitter(const std::string& pattern, PatternSyntax syntax,
                                              const std::string& what);

/// Makes a splitter for literal text.
std::unique_ptr<const Splitter> make_literal_splitter(const std::string& text);

/// The pattern of a tiktoken encoding; other names are returned unchanged.
std::string tiktoken_pattern(const std::string& name);

}  // namespace ferry
