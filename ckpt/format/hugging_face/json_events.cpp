#include "ckpt/format/hugging_face/json_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ckpt/base/json_error.h"

namespace ferry {
namespace {

constexpr int kMaxDepth = 100;

// The library takes a NUL for the end of its input, and what follows would go unseen.
void refuse_nul(std::string_view text, const std::string& what) {
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    fail(ErrorKind::corrupt, "{}: NUL at byte {} of its JSON; the file is damaged", what, nul);
  }
}

}  // namespace

bool JsonEvents::parse_error(std::size_t position, const std::string&,
                             const nlohmann::detail::exception& error) {
  fail(ErrorKind::corrupt, "{}: not JSON at byte {} ({}); the file is damaged or is something else",
       what_, position, json_message(error));
}

bool JsonEvents::refuse(std::string_view found) const {
  fail(ErrorKind::corrupt, "{}: {}, not {}", what_, expected(), found);
}

void parse_events(std::string_view text, JsonEvents& events) {
  refuse_nul(text, events.what());
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
}

namespace {

struct Word {
  std::string_view text;
  double value;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Word kWords[] = {{"NaN", std::numeric_limits<double>::quiet_NaN()},
                           {"Infinity", kInfinity},
                           {"-Infinity", -kInfinity}};

// The word for a number (NaN, Infinity) at the beginning of `text`; null: there is none.
const Word* word_at(std::string_view text) {
  for (const Word& word : kWords) {
    if (text.starts_with(word.text)) return &word;
  }
  return nullptr;
}

// A text that no string of `text` holds as it is.
std::string unused_mark(std::string_view text) {
  std::string mark = "number:";
  while (text.find(mark) != std::string_view::npos) mark += ':';
  return mark;
}

// The words outside of strings made strings: the mark, and the word.
std::string with_marked_words(std::string_view text, const std::string& mark) {
  std::string marked;
  marked.reserve(text.size() + 64);
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      marked += text[i++];
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (const Word* word = in_string ? nullptr : word_at(text.substr(i))) {
      marked += '"' + mark;
      marked += word->text;
      marked += '"';
      i += word->text.size() - 1;
      continue;
    }
    marked += text[i];
  }
  return marked;
}

// `mark`: of strings that are words; empty: there are none. `members`: what is kept of the
// outermost object; empty: all.
nlohmann::json parse_tree(std::string_view text, const std::string& what, std::string_view mark,
                          std::span<const std::string_view> members) {
  refuse_nul(text, what);
  using Event = nlohmann::json::parse_event_t;
  const auto visit = [&](int depth, Event event, nlohmann::json& value) {
    if (depth > kMaxDepth) {
      fail(ErrorKind::corrupt, "{}: nested deeper than {} levels", what, kMaxDepth);
    }
    if (event == Event::key && depth == 1 && !members.empty() &&
        std::ranges::find(members, value.get_ref<const std::string&>()) == members.end()) {
      return false;
    }
    if (mark.empty() || !value.is_string()) return true;
    const std::string_view string = value.get_ref<const std::string&>();
    const Word* word = string.starts_with(mark) ? word_at(string.substr(mark.size())) : nullptr;
    if (word == nullptr) return true;
    if (event == Event::key) {
      fail(ErrorKind::corrupt,
           "{}: not JSON ({} for a key); the file is damaged or is something else", what,
           word->text);
    }
    if (event == Event::value) value = word->value;
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), visit);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::corrupt, "{}: not JSON ({}); the file is damaged or is something else", what,
         json_message(error));
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& what) {
  return parse_tree(text, what, {}, {});
}

nlohmann::json parse_python_json(std::string_view text, const std::string& what) {
  return parse_python_members(text, what, {});
}

nlohmann::json parse_python_members(std::string_view text, const std::string& what,
                                    std::span<const std::string_view> members) {
  const bool has_words =
      text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos;
  if (!has_words) return parse_tree(text, what, {}, members);
  const std::string mark = unused_mark(text);
  return parse_tree(with_marked_words(text, mark), what, mark, members);
}

std::string edit_python_json(std::string_view text, const std::string& what,
                             const std::function<void(nlohmann::ordered_json&)>& edit) {
  parse_python_json(text, what);  // refuses what it does
  const std::string mark = unused_mark(text);
  nlohmann::ordered_json document = nlohmann::ordered_json::parse(with_marked_words(text, mark));
  edit(document);
  std::string edited = document.dump(2, ' ', true);
  const std::string opening = '"' + mark;
  for (size_t at = edited.find(opening); at != std::string::npos; at = edited.find(opening, at)) {
    edited.erase(at, opening.size());
    edited.erase(edited.find('"', at), 1);
  }
  return edited + "\n";
}

}  // namespace ferry
