#include "ckpt/base/option_name.h"

#include <algorithm>

namespace ferry {
namespace {

constexpr std::string_view kPrefix = "options.";

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The word that `text` begins with, which it then no longer does.
std::string_view take_word(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_word);
  const std::string_view word = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(word.size());
  return word;
}

OptionName take_option(std::string_view& text) {
  OptionName option = {take_word(text), {}};
  if (!text.starts_with('=')) return option;
  std::string_view rest = text.substr(1);
  option.value = take_word(rest);
  if (!option.value.empty()) text = rest;
  return option;
}

}  // namespace

std::string spell_options(std::string_view message, const OptionSpelling& spelling) {
  std::string spelled;
  while (!message.empty()) {
    const size_t at = std::min(message.find(kPrefix), message.size());
    // Inside a longer name (of a file, of a tensor) it is no option.
    const bool starts = at == 0 ? spelled.empty() || spelled.back() == ' ' || spelled.back() == '('
                                : message[at - 1] == ' ' || message[at - 1] == '(';
    spelled += message.substr(0, at);
    message.remove_prefix(at);
    if (message.empty()) break;
    std::string_view rest = message.substr(kPrefix.size());
    const OptionName option = take_option(rest);
    const auto words = starts && !option.name.empty() ? spelling(option) : std::nullopt;
    const std::string_view original = message.substr(0, message.size() - rest.size());
    spelled += words ? std::string_view(*words) : original;
    message = rest;
  }
  return spelled;
}

}  // namespace ferry
