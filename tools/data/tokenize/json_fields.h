// The texts of one line of JSON, as Python's json.loads reads it: of two members of one name the
// last counts, NaN and Infinity are numbers, and a control character in a string is an error.
//
// Source: RFC 8259; Lib/json/decoder.py and scanner.py of CPython.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::tool {

/// Objects and arrays in each other, at most.
inline constexpr int kDeepestJson = 990;  // Python's own limit is 1000 calls, ours about the same

/// The value of a key: a string, or a list of strings.
struct FieldTexts {
  bool found = false;
  bool is_list = false;
  std::vector<std::string_view> texts;  // UTF-8, valid until the next line or the line's end
};

/// Reads line after line; for one thread.
class JsonFields {
 public:
  explicit JsonFields(std::vector<std::string> keys);

  /// Reads one line, an object that has all the keys. Returns what is wrong with it, with the
  /// column if known; empty: nothing, and fields() are its. The line must outlive them.
  std::string read(std::string_view line);

  /// In the order of the keys.
  const std::vector<FieldTexts>& fields() const noexcept { return fields_; }

 private:
  class Reader;

  std::vector<std::string> keys_;
  std::vector<FieldTexts> fields_;
  std::string unescaped_;  // as large as the line: what points into it stays
};

}  // namespace ferry::tool
