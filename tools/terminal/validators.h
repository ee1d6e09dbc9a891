// What options take, checked before anything is done, and refused in words of ours.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ferry::tool {

/// A whole number from `least` to `most` in decimal digits: "010" is ten.
CLI::Validator whole_number(int64_t least, int64_t most);

/// A finite number that is not negative: "1e-6".
CLI::Validator not_negative();

/// Any text but none; `problem` is what the refusal says.
CLI::Validator not_empty(std::string problem);

/// One of some words, as they are spelled.
CLI::Validator one_of(std::vector<std::string> words);

/// The same, for an option of an enumeration.
template <typename Enum>
CLI::Validator meaning_of(const std::map<std::string, Enum>& meanings) {
  std::vector<std::string> words;
  for (const auto& [word, meaning] : meanings) words.push_back(word);
  return CLI::Validator(
      [meanings, is_word = one_of(words)](std::string& text) {
        std::string problem = is_word(text);
        if (problem.empty()) text = std::to_string(static_cast<int>(meanings.at(text)));
        return problem;
      },
      "");
}

}  // namespace ferry::tool
