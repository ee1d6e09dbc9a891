#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "tools/help/description.h"
#include "tools/terminal/command.h"

namespace ferry::tool {
namespace {

OptionDescription describe(CLI::Option& option) {
  OptionDescription described;
  described.is_positional = !option.nonpositional();
  described.is_required = option.get_required();
  described.help = option.get_description();
  described.heading = option.get_group();
  if (described.is_positional) {
    described.names = {option.get_name(true)};
  } else {
    for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  }
  if (option.get_items_expected_max() == 0 || option.get_type_size_max() == 0) return described;
  described.value = option.get_type_name().empty() ? "VALUE" : option.get_type_name();
  if (described.is_positional) described.value = option.get_name(true);
  if (option.get_items_expected_max() > 1) described.value += " ...";
  described.words = words_of(option);
  return described;
}

// What --help prints of a command whose line begins with `words`: App::help() is that of the
// command that was called.
std::string help_text(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string name = fmt::to_string(fmt::join(words, " "));
  return app.get_formatter()->make_help(&app, name, CLI::AppFormatMode::Normal);
}

// What follows "Usage: " in `text`.
std::string usage_in(const std::string& text) {
  const std::string mark = "Usage: ";
  const size_t begin = text.find(mark) + mark.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

CommandDescription describe(CLI::App& app, std::vector<std::string> words) {
  CommandDescription described;
  described.help = app.get_description();
  described.text = help_text(app, words);
  described.usage = usage_in(described.text);
  described.footer = app.get_footer();
  for (CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) described.options.push_back(describe(*option));
  }
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    std::vector<std::string> longer = words;
    longer.push_back(command->get_name());
    described.commands.push_back(describe(*command, std::move(longer)));
  }
  std::stable_partition(described.options.begin(), described.options.end(),
                        [](const OptionDescription& option) { return option.is_positional; });
  described.words = std::move(words);
  return described;
}

}  // namespace ferry::tool
