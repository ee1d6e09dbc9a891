// Descriptions of sample orders, character by character as Python's json writes Megatron-LM's:
// their MD5 names the files of a cache.
#pragma once

#include <string>
#include <string_view>

namespace ferry {

/// A JSON object over several lines, indented by four.
class Description {
 public:
  /// `json`: the value, over as many lines as if it stood alone.
  void add(std::string_view key, std::string_view json);
  std::string text() const;

 private:
  std::string members_;
};

/// "[", the values, "]" likewise; "[]" of none.
class DescriptionList {
 public:
  void add(std::string_view json);
  std::string text() const;

 private:
  std::string values_;
};

/// A string as JSON, ASCII alone.
std::string quoted(std::string_view text);
/// A number as Python prints it: the fewest digits that give it back, "1.0", "1e-05".
std::string number(double value);
/// The tokenizer's object as it was given (DataOptions::tokenizer), written again. invalid for what
/// is no JSON object.
std::string json_of_tokenizer(const std::string& json);

}  // namespace ferry
