// The options and arguments of a command. The parser is CLI11, whose headers take seconds to
// compile: only command.cpp and main.cpp include them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/terminal/validators.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ferry::tool {

/// An option or argument of a command. What changes it returns it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& required();
  /// What stands for its value in --help; empty: nothing.
  Option& type_name(const std::string& name);
  /// The value that --help shows as the default.
  Option& default_text(const std::string& text);
  /// The heading of --help under which it stands.
  Option& group(const std::string& heading);
  Option& check(const Check& check);
  /// One of these, as they are spelled; `others` as of tool::one_of().
  Option& one_of(const std::vector<std::string>& words,
                 const std::map<std::string, std::string>& others = {});
  /// How many values may follow it.
  Option& expected(int least, int most);
  Option& excludes(const std::string& name);

  /// Whether it was given; known when the command's action runs.
  bool given() const;

 private:
  CLI::Option* option_;
};

/// The arguments of a process as CLI::App::parse() takes them, the last one first, with a mark
/// where it would take one apart. Values have no mark; what the parser itself says may.
std::vector<std::string> whole_arguments(int argc, char** argv);
std::string without_marks(std::string text);

/// The words of Option::one_of(); none where it was not called.
std::vector<std::string> words_of(CLI::Option& option);

/// A command, or the program that has commands. A handle: copies are the same command. Values go to
/// variables, which must outlive the parser.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Command add_command(const std::string& name, const std::string& help);
  /// A line without one of its commands is an error.
  void require_command();

  /// `names` as "-o,--output", or "PATH" for a positional argument. An option of a list takes one
  /// or more values.
  Option add_option(const std::string& names, std::string& value, const std::string& help);
  Option add_option(const std::string& names, std::optional<std::string>& value,
                    const std::string& help);
  Option add_option(const std::string& names, std::vector<std::string>& values,
                    const std::string& help);
  Option add_option(const std::string& names, int& value, const std::string& help);
  Option add_option(const std::string& names, int64_t& value, const std::string& help);
  Option add_option(const std::string& names, std::optional<int64_t>& value,
                    const std::string& help);
  Option add_option(const std::string& names, std::optional<double>& value,
                    const std::string& help);
  /// The value is given to a function, which may refuse it by throwing an Error.
  Option add_option(const std::string& names, std::function<void(const std::string&)> take,
                    const std::string& help);
  Option add_list_option(const std::string& names,
                         std::function<void(const std::vector<std::string>&)> take,
                         const std::string& help);
  /// One of some words, each with its meaning.
  template <typename Meaning>
  Option add_choice(const std::string& names, Meaning& value,
                    const std::map<std::string, Meaning>& meanings, const std::string& help,
                    const std::map<std::string, std::string>& others = {});

  Option add_flag(const std::string& names, bool& value, const std::string& help);
  Option add_flag(const std::string& names, std::function<void()> given, const std::string& help);

  /// Stands under its --help.
  void footer(const std::string& text);
  /// What it does once its line was parsed.
  void action(std::function<void()> action);

 private:
  CLI::App* app_;
};

template <typename Meaning>
Option Command::add_choice(const std::string& names, Meaning& value,
                           const std::map<std::string, Meaning>& meanings, const std::string& help,
                           const std::map<std::string, std::string>& others) {
  std::vector<std::string> words;
  for (const auto& [word, meaning] : meanings) words.push_back(word);
  const auto take = [&value, meanings](const std::string& word) { value = meanings.at(word); };
  return add_option(names, take, help).one_of(words, others);
}

}  // namespace ferry::tool
