// How a tokenizer divides text into pieces, over whose borders no token reaches.
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
  /// The first match at or behind `from`, which no character reaches over; {size, size} when there
  /// is none. `text` is UTF-8. Safe from several threads. exhausted when looking takes too long.
  virtual Match find(std::string_view text, size_t from) const = 0;
};

/// Whose regular expressions: those of Hugging Face's tokenizers, or of tiktoken.
enum class PatternSyntax { oniguruma, rust };

/// Of `pattern`: written by hand where it is one that published tokenizers use, else PCRE2's.
/// unsupported, with `what` at its start, when it cannot be compiled.
std::unique_ptr<const Splitter> make_splitter(const std::string& pattern, PatternSyntax syntax,
                                              const std::string& what);

/// Of a text that is to be found as it stands.
std::unique_ptr<const Splitter> make_literal_splitter(const std::string& text);

/// The patterns of tiktoken's encodings by name, and the name given back where it is none.
std::string tiktoken_pattern(const std::string& name);

}  // namespace ferry
