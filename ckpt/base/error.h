// The one exception type of the project, and how its messages name the options of operations.
//
// Everything that a file, a flag or the environment can cause is reported as a ferry::Error whose
// kind a caller can act on and whose message names the file, the tensor, what was expected, what
// was found and what to do next. Assertions are for our own bugs only.
//
// A library cannot know how its caller spells an option: as a member of a struct, a flag of a
// command line or a keyword of another language. Messages therefore name options with option(),
// and a front end passes them through spell_options() before it shows them.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace ferry {

enum class ErrorKind {
  not_found,    // a file, tensor or iteration that was asked for is not there
  corrupt,      // bytes that contradict their own format
  unsupported,  // valid, but nothing here can read or express it
  invalid,      // a wrong argument or option
  mismatch,     // two things that must agree do not (shapes, names, family, layout)
  io,           // the operating system refused
  exhausted,    // out of disk, memory budget or a parser's limit
  busy,         // another process is at it; later it can be had
  internal,     // a bug in ferry
  cancelled,    // stopped by the user
};

/// `kind` in lower-case words, as printed in reports ("corrupt", "not found").
std::string_view name(ErrorKind kind) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

  /// The file or folder that the error is about; empty: it is about none, or it is not known which.
  std::string_view path() const noexcept { return path_ ? std::string_view(*path_) : ""; }
  void set_path(std::string path) { path_ = std::make_shared<const std::string>(std::move(path)); }
  /// Where no path is set: sets the first one in the message that is one of `paths` or below it.
  void find_path(std::initializer_list<std::string_view> paths);

 private:
  ErrorKind kind_;
  std::shared_ptr<const std::string> path_;  // shared, so that copying an Error does not throw
};

/// What a message says to do, or what follows: the text after its last "; ". Empty: it says
/// nothing.
std::string_view hint_of(std::string_view message) noexcept;

/// work(), whose errors get one of `paths`, or a file below it, as find_path() does.
template <typename Work>
decltype(auto) with_paths(std::initializer_list<std::string_view> paths, const Work& work) {
  try {
    return work();
  } catch (Error& error) {
    error.find_path(paths);
    throw;
  }
}

/// Throws an Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

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
