#include "trainer/data/samples/description.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// A value that stands one level deeper.
std::string indented(std::string_view json) {
  std::string text;
  for (const char c : json) {
    text += c;
    if (c == '\n') text += "    ";
  }
  return text;
}

void append(std::string& list, const std::string& element) {
  list += (list.empty() ? "\n    " : ",\n    ") + element;
}

}  // namespace

void Description::add(std::string_view key, std::string_view json) {
  append(members_, quoted(key) + ": " + indented(json));
}

std::string Description::text() const { return members_.empty() ? "{}" : "{" + members_ + "\n}"; }

void DescriptionList::add(std::string_view json) { append(values_, indented(json)); }

std::string DescriptionList::text() const { return values_.empty() ? "[]" : "[" + values_ + "\n]"; }

std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string json_of_tokenizer(const std::string& json) {
  const auto tree = nlohmann::ordered_json::parse(json, nullptr, false);
  if (!tree.is_object()) {
    fail(ErrorKind::invalid, "the description of the tokenizer is no JSON object: {}", json);
  }
  return tree.dump(4, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace ferry
