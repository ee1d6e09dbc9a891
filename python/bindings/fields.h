// Members of the library's reports as Python shows them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "python/bindings/bindings.h"

namespace ferry::python {

template <typename T>
struct MemberOf;
template <typename Class, typename Value>
struct MemberOf<Value Class::*> {
  using Record = Class;
};
template <auto member>
using RecordOf = typename MemberOf<decltype(member)>::Record;

/// A text that is empty where there is none.
template <auto member>
std::optional<std::string> text_or_none(const RecordOf<member>& record) {
  const std::string& text = record.*member;
  return text.empty() ? std::nullopt : std::optional(text);
}

/// A number that is 0 where it is not known.
template <auto member>
std::optional<int64_t> known(const RecordOf<member>& record) {
  const int64_t number = record.*member;
  return number == 0 ? std::nullopt : std::optional(number);
}

/// Messages, with options as keywords.
template <auto member>
std::vector<std::string> messages(const RecordOf<member>& record) {
  std::vector<std::string> all;
  for (const std::string& message : record.*member) all.push_back(in_keywords(message));
  return all;
}
template <auto member>
std::string message(const RecordOf<member>& record) {
  return in_keywords(record.*member);
}
template <auto member>
std::optional<std::string> message_or_none(const RecordOf<member>& record) {
  const std::string& text = record.*member;
  return text.empty() ? std::nullopt : std::optional(in_keywords(text));
}

}  // namespace ferry::python
