#include "tools/terminal/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

namespace ferry::tool {

namespace {

const std::string kWords = "one of ";

// CLI11 takes a value "[a,b]" apart where an option takes several, and here that is a file's name
// or a set of letters in a pattern. No argument has a zero byte, so one after the bracket keeps the
// value whole until it is read.
constexpr char kWholeMark = '\0';

std::string without_mark(std::string& text) {
  if (text.ends_with(kWholeMark)) text.pop_back();
  return {};
}

CLI::Validator unmarked(const Check& check, const std::string& name) {
  const auto check_unmarked = [check](std::string& text) {
    without_mark(text);
    return check(text);
  };
  return {check_unmarked, "", name};
}

// Its values, checked or not, are as they were given.
Option unmarked_option(CLI::Option* option) {
  option->transform(CLI::Validator(without_mark, ""));
  return Option(option);
}

}  // namespace

std::vector<std::string> whole_arguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  for (std::string& argument : arguments) {
    if (argument.ends_with(']')) argument += kWholeMark;
  }
  std::ranges::reverse(arguments);
  return arguments;
}

std::string without_marks(std::string text) {
  std::erase(text, kWholeMark);
  return text;
}

std::vector<std::string> words_of(CLI::Option& option) {
  std::vector<std::string> words;
  try {
    const std::string& name = option.get_validator(0)->get_name();
    if (!name.starts_with(kWords)) return words;
    std::istringstream text(name.substr(kWords.size()));
    for (std::string word; text >> word;) words.push_back(word);
  } catch (const CLI::OptionNotFound&) {
    // It has none.
  }
  return words;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::default_text(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Option& Option::group(const std::string& heading) {
  option_->group(heading);
  return *this;
}

Option& Option::check(const Check& check) {
  option_->transform(unmarked(check, ""));
  return *this;
}

// The parser keeps a validator's name and does not show it.
Option& Option::one_of(const std::vector<std::string>& words,
                       const std::map<std::string, std::string>& others) {
  std::string name = kWords;
  for (const std::string& word : words) name += word + " ";
  option_->transform(unmarked(tool::one_of(words, others), name));
  return *this;
}

Option& Option::expected(int least, int most) {
  option_->expected(least, most);
  option_->allow_extra_args(false);  // else "--option=VALUE NAME" would be two values
  return *this;
}

Option& Option::excludes(const std::string& name) {
  option_->excludes(name);
  return *this;
}

bool Option::given() const { return option_->count() > 0; }

Command Command::add_command(const std::string& name, const std::string& help) {
  CLI::App* const command = app_->add_subcommand(name, help);
  command->footer("");  // CLI11 gives it its parent's
  return Command(*command);
}

void Command::require_command() { app_->require_subcommand(1); }

Option Command::add_option(const std::string& names, std::string& value, const std::string& help) {
  return unmarked_option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::optional<std::string>& value,
                           const std::string& help) {
  return unmarked_option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::vector<std::string>& values,
                           const std::string& help) {
  return unmarked_option(app_->add_option(names, values, help));
}

Option Command::add_option(const std::string& names, int& value, const std::string& help) {
  return unmarked_option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, int64_t& value, const std::string& help) {
  return unmarked_option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::optional<int64_t>& value,
                           const std::string& help) {
  return unmarked_option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::optional<double>& value,
                           const std::string& help) {
  return unmarked_option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::function<void(const std::string&)> take,
                           const std::string& help) {
  return unmarked_option(app_->add_option_function<std::string>(names, std::move(take), help));
}

Option Command::add_list_option(const std::string& names,
                                std::function<void(const std::vector<std::string>&)> take,
                                const std::string& help) {
  return unmarked_option(
      app_->add_option_function<std::vector<std::string>>(names, std::move(take), help));
}

Option Command::add_flag(const std::string& names, bool& value, const std::string& help) {
  return Option(app_->add_flag(names, value, help));
}

Option Command::add_flag(const std::string& names, std::function<void()> given,
                         const std::string& help) {
  return Option(app_->add_flag_callback(names, std::move(given), help));
}

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::action(std::function<void()> action) { app_->callback(std::move(action)); }

}  // namespace ferry::tool
