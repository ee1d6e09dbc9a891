// What --help says of a command, as data: completions for shells and man pages are written from it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ferry::tool {

struct OptionDescription {
  std::vector<std::string> names;  // with their dashes; of a positional argument its name alone
  std::string value;               // what stands for its value; empty: it takes none
  std::vector<std::string> words;  // that the value is one of, where it is
  std::string help;
  std::string heading;  // under which it stands
  bool is_required = false;
  bool is_positional = false;
};

struct CommandDescription {
  std::vector<std::string> words;  // {"ferry", "data", "merge"}
  std::string help, usage, footer;
  std::string text;                        // all that --help prints
  std::vector<OptionDescription> options;  // positional arguments first
  std::vector<CommandDescription> commands;
};

/// Describes a parser and all of its commands.
CommandDescription describe(CLI::App& app, std::vector<std::string> words);

}  // namespace ferry::tool
