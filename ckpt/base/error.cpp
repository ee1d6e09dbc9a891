#include "ckpt/base/error.h"

#include <algorithm>

namespace ferry {
namespace {

constexpr std::string_view kBeforePaths = " '\"(", kAfterPaths = " '\"(),;:";

// Where `message` names `path`, as a whole or as a folder of a path; npos: nowhere.
size_t named_at(std::string_view message, std::string_view path) {
  if (path.empty()) return std::string_view::npos;
  for (size_t at = message.find(path); at != std::string_view::npos;
       at = message.find(path, at + 1)) {
    const size_t end = at + path.size();
    const bool begins = at == 0 || kBeforePaths.find(message[at - 1]) != std::string_view::npos;
    const bool ends = end == message.size() || path.back() == '/' || message[end] == '/' ||
                      kAfterPaths.find(message[end]) != std::string_view::npos ||
                      (message[end] == '.' && end + 1 == message.size());
    if (begins && ends) return at;
  }
  return std::string_view::npos;
}

constexpr std::string_view kOptionPrefix = "options.";

bool is_in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_in_value(char c) { return is_in_name(c) || c == '-'; }

bool is_quote(char c) { return c == '\'' || c == '"'; }

// What `text` begins with, which it then no longer does.
std::string_view take(std::string_view& text, bool (*is_part)(char)) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_part);
  const std::string_view word = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(word.size());
  return word;
}

// Without its quotes.
std::string_view take_value(std::string_view& text) {
  if (text.empty() || !is_quote(text[0])) return take(text, is_in_value);
  const size_t end = text.find(text[0], 1);
  if (end == std::string_view::npos) return {};
  const std::string_view value = text.substr(1, end - 1);
  text.remove_prefix(end + 1);
  return value;
}

OptionName take_option(std::string_view& text) {
  OptionName option = {take(text, is_in_name), {}};
  if (!text.starts_with('=')) return option;
  std::string_view rest = text.substr(1);
  option.value = take_value(rest);
  if (!option.value.empty()) text = rest;
  return option;
}

}  // namespace

std::string_view name(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::not_found:
      return "not found";
    case ErrorKind::corrupt:
      return "corrupt";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::invalid:
      return "invalid";
    case ErrorKind::mismatch:
      return "mismatch";
    case ErrorKind::io:
      return "io";
    case ErrorKind::exhausted:
      return "exhausted";
    case ErrorKind::busy:
      return "busy";
    case ErrorKind::internal:
      return "internal";
    case ErrorKind::cancelled:
      return "cancelled";
  }
  return "internal";
}

void Error::find_path(std::initializer_list<std::string_view> paths) {
  if (path_) return;
  const std::string_view message = what();
  size_t begin = std::string_view::npos, length = 0;
  for (const std::string_view path : paths) {
    const size_t at = named_at(message, path);
    if (at < begin || (at == begin && at != std::string_view::npos && path.size() > length)) {
      begin = at;
      length = path.size();
    }
  }
  if (begin == std::string_view::npos) return;
  size_t end = std::min(message.find_first_of(kAfterPaths, begin + length), message.size());
  if (message[end - 1] == '.') --end;  // of the sentence
  set_path(std::string(message.substr(begin, std::max(end - begin, length))));
}

std::string_view hint_of(std::string_view message) noexcept {
  const size_t at = message.rfind("; ");
  return at == std::string_view::npos ? std::string_view() : message.substr(at + 2);
}

std::string to_string(const OptionName& option) {
  const std::string_view value = option.value;
  std::string text = std::string(kOptionPrefix) + std::string(option.name);
  if (value.empty()) return text;
  const bool is_plain = std::all_of(value.begin(), value.end(), is_in_value);
  const bool has_quote = value.find('\'') != std::string_view::npos;
  const std::string quote = is_plain ? "" : has_quote ? "\"" : "'";
  return text + "=" + quote + std::string(value) + quote;
}

std::string spell_options(std::string_view message, const OptionSpelling& spelling) {
  std::string spelled;
  while (!message.empty()) {
    const size_t at = std::min(message.find(kOptionPrefix), message.size());
    // Inside a longer name (of a file, of a tensor) it is not an option.
    const bool starts = at == 0 ? spelled.empty() || spelled.back() == ' ' || spelled.back() == '('
                                : message[at - 1] == ' ' || message[at - 1] == '(';
    spelled += message.substr(0, at);
    message.remove_prefix(at);
    if (message.empty()) break;
    std::string_view rest = message.substr(kOptionPrefix.size());
    const OptionName option = take_option(rest);
    const auto words = starts && !option.name.empty() ? spelling(option) : std::nullopt;
    const std::string_view original = message.substr(0, message.size() - rest.size());
    spelled += words ? std::string_view(*words) : original;
    message = rest;
  }
  return spelled;
}

}  // namespace ferry
