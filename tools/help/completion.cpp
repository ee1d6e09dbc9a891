#include "tools/help/completion.h"

#include <fmt/format.h>

#include <functional>
#include <vector>

namespace ferry::tool {
namespace {

// The words that call a command, without the program's name: "data merge".
std::string path_of(const CommandDescription& command) {
  return fmt::format("{}", fmt::join(command.words.begin() + 1, command.words.end(), " "));
}

void for_each_command(const CommandDescription& command,
                      const std::function<void(const CommandDescription&)>& act) {
  act(command);
  for (const CommandDescription& below : command.commands) for_each_command(below, act);
}

// What stands between quotes 'so', where a quote ends them for a moment.
std::string in_quotes(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// In fish a backslash keeps a quote.
std::string in_fish_quotes(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

// The words that may directly follow a command: a command of its own, or a value of its first
// argument.
std::vector<std::string> first_words(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const CommandDescription& below : command.commands) names.push_back(below.words.back());
  for (const OptionDescription& option : command.options) {
    if (option.is_positional) names.insert(names.end(), option.words.begin(), option.words.end());
  }
  return names;
}

std::vector<std::string> option_names(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const OptionDescription& option : command.options) {
    if (option.is_positional) continue;
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

// All paths of commands as patterns of a shell's `case`: what $1 and a word after it make.
std::string command_patterns(const CommandDescription& program) {
  std::vector<std::string> patterns;
  for_each_command(program, [&](const CommandDescription& command) {
    if (command.words.size() > 1) patterns.push_back(in_quotes(path_of(command)));
  });
  return fmt::format("{}", fmt::join(patterns, "|"));
}

// A brief text of one line, without what zsh's _arguments takes for its own.
std::string for_zsh(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

std::string zsh_name(const CommandDescription& command) {
  std::string name;
  for (const std::string& word : command.words) name += "_" + word;
  return name;
}

// '(-o --output)'{-o,--output}'[help]:FILE:_files'
std::string zsh_option(const OptionDescription& option) {
  const std::string names = fmt::format("{}", fmt::join(option.names, ","));
  std::string text = option.names.size() == 1 ? names : "{" + names + "}";
  std::string rest = option.help.empty() ? "" : "[" + for_zsh(option.help) + "]";
  if (!option.value.empty()) {
    rest += ":" + for_zsh(option.value) + ":";
    rest += option.words.empty() ? "_files" : fmt::format("({})", fmt::join(option.words, " "));
  }
  return text + in_quotes(rest);
}

void add_zsh_function(const CommandDescription& command, std::string& script) {
  script += fmt::format("\n{}() {{\n", zsh_name(command));
  if (!command.commands.empty()) script += "    local line state\n    local -a commands\n";
  script += "    _arguments -S";
  if (!command.commands.empty()) script += " -C";
  for (const OptionDescription& option : command.options) {
    if (!option.is_positional) script += " \\\n        " + zsh_option(option);
  }
  if (command.commands.empty()) {
    const std::vector<std::string> words = first_words(command);
    script += words.empty()
                  ? " \\\n        '*:file:_files'\n}\n"
                  : fmt::format(" \\\n        '1:word:({})'\n}}\n", fmt::join(words, " "));
    return;
  }
  script += " \\\n        '1: :->command' '*:: :->rest'\n    case $state in\n    command)\n";
  script += "        commands=(\n";
  for (const CommandDescription& below : command.commands) {
    script += "            " + in_quotes(below.words.back() + ":" + for_zsh(below.help)) + "\n";
  }
  script +=
      "        )\n        _describe command commands ;;\n    rest)\n        case $line[1] in\n";
  for (const CommandDescription& below : command.commands) {
    script += fmt::format("        {}) {} ;;\n", below.words.back(), zsh_name(below));
  }
  script += "        esac ;;\n    esac\n}\n";
}

}  // namespace

std::string bash_completion(const CommandDescription& program) {
  std::string script = fmt::format(R"(# Completions of ferry for bash.
_ferry() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= options= words= i
    for ((i = 1; i < COMP_CWORD; ++i)); do
        case "$command${{command:+ }}${{COMP_WORDS[i]}}" in
        {}) command+="${{command:+ }}${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$command $before" in
)",
                                   command_patterns(program));
  for_each_command(program, [&](const CommandDescription& command) {
    for (const OptionDescription& option : command.options) {
      if (option.words.empty()) continue;
      for (const std::string& name : option.names) {
        script += fmt::format("    {}) words={} ;;\n", in_quotes(path_of(command) + " " + name),
                              in_quotes(fmt::format("{}", fmt::join(option.words, " "))));
      }
    }
  });
  script += "    esac\n    case \"$command\" in\n";
  for_each_command(program, [&](const CommandDescription& command) {
    script += fmt::format("    {})\n        options={}\n", in_quotes(path_of(command)),
                          in_quotes(fmt::format("{}", fmt::join(option_names(command), " "))));
    if (const std::vector<std::string> words = first_words(command); !words.empty()) {
      script +=
          fmt::format("        words={}\n", in_quotes(fmt::format("{}", fmt::join(words, " "))));
    }
    script += "        ;;\n";
  });
  return script + R"(    esac
    case "$word" in
    -*) words=$options ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _ferry ferry
)";
}

std::string zsh_completion(const CommandDescription& program) {
  std::string script = "#compdef ferry\n# Completions of ferry for zsh.\n";
  for_each_command(program,
                   [&](const CommandDescription& command) { add_zsh_function(command, script); });
  return script + "\n_ferry \"$@\"\n";
}

std::string fish_completion(const CommandDescription& program) {
  std::string script = fmt::format(R"(# Completions of ferry for fish.
function __ferry_at
    set -l command
    for word in (commandline -opc)[2..-1]
        switch "$command $word"
)");
  std::vector<std::string> patterns;
  for_each_command(program, [&](const CommandDescription& command) {
    if (command.words.size() > 1) patterns.push_back(in_fish_quotes(" " + path_of(command)));
  });
  script += fmt::format("            case {}\n", fmt::join(patterns, " "));
  script += R"(                set command "$command $word"
        end
    end
    test "$command" = "$argv[1]"
end
)";
  for_each_command(program, [&](const CommandDescription& command) {
    const std::string path = path_of(command);
    const std::string at = fmt::format(
        "complete -c ferry -n {}",
        in_fish_quotes(fmt::format("__ferry_at \"{}{}\"", path.empty() ? "" : " ", path)));
    for (const CommandDescription& below : command.commands) {
      script +=
          fmt::format("{} -f -a {} -d {}\n", at, below.words.back(), in_fish_quotes(below.help));
    }
    for (const OptionDescription& option : command.options) {
      if (option.is_positional) {
        for (const std::string& word : option.words) {
          script += fmt::format("{} -f -a {}\n", at, word);
        }
        continue;
      }
      script += at;
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--");
        script += (is_long ? " -l " : " -s ") + name.substr(is_long ? 2 : 1);
      }
      if (!option.value.empty()) script += " -r";
      if (!option.words.empty()) {
        script += " -f -a " + in_fish_quotes(fmt::format("{}", fmt::join(option.words, " ")));
      }
      script += " -d " + in_fish_quotes(option.help) + "\n";
    }
  });
  return script;
}

}  // namespace ferry::tool
