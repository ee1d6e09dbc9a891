#include "tools/terminal/validators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

// The whole text as a number; false when it is none, or too large.
template <typename Number>
bool parse(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace

Check whole_number(int64_t least, int64_t most) {
  return [least, most](std::string& text) {
    int64_t number = 0;
    if (parse(text, number) && number >= least && number <= most) {
      text = std::to_string(number);  // without zeros in front, which would make it octal
      return std::string();
    }
    return fmt::format("'{}' is not a whole number from {}{}", printable(text), least,
                       most == INT64_MAX ? " on" : fmt::format(" to {}", most));
  };
}

Check not_negative() {
  return [](std::string& text) {
    double number = 0;
    if (parse(text, number) && std::isfinite(number) && number >= 0) return std::string();
    return fmt::format("'{}' is not a number from 0 on, such as 1e-6", printable(text));
  };
}

Check not_empty(std::string problem) {
  return [problem = std::move(problem)](const std::string& text) {
    return text.empty() ? problem : std::string();
  };
}

Check file_prefix() {
  return [](const std::string& text) {
    if (text.empty()) return std::string("give the prefix of the files to write");
    if (!text.ends_with('/')) return std::string();
    return text + " names a folder: give the prefix of the files in it, such as " + text + "corpus";
  };
}

Check one_of(std::vector<std::string> words, std::map<std::string, std::string> others) {
  return [words = std::move(words), others = std::move(others)](std::string& text) {
    if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
    std::string key = text;
    for (char& c : key) {
      c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    const auto other = others.find(key);
    return fmt::format("'{}' is none of {}{}", printable(text), fmt::join(words, ", "),
                       other == others.end() ? "" : ": " + other->second);
  };
}

}  // namespace ferry::tool
