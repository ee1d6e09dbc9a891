// Options of an operation, named in messages.
//
// A library cannot know how its caller spells an option: as a member of a struct, a flag of a
// command line or a keyword of another language. Messages therefore name options with option(),
// and a front end passes them through spell_options() before it shows them.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// A member of an options struct, or of a struct in it, and a value of it where the message is
/// about one. The name consists of letters, digits and underscores. In a message it follows a blank
/// or a parenthesis, or begins it. As an argument of fmt it reads "options.optimizer=none", with a
/// value of other characters than those and '-' in quotes: "options.only='model.*'".
struct OptionName {
  std::string_view name;
  std::string_view value;
};

constexpr OptionName option(std::string_view name, std::string_view value = {}) {
  return {name, value};
}

/// "options.optimizer=none"
std::string to_string(const OptionName& option);

/// The front end's words for an option; nothing where it has no such option, which then stays.
using OptionSpelling = std::function<std::optional<std::string>(const OptionName& option)>;

/// The message with each option in the words of `spelling`.
std::string spell_options(std::string_view message, const OptionSpelling& spelling);

}  // namespace ferry

template <>
struct fmt::formatter<ferry::OptionName> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  template <typename Context>
  auto format(const ferry::OptionName& option, Context& context) const {
    return fmt::format_to(context.out(), "{}", ferry::to_string(option));
  }
};
