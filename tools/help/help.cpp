#include "tools/help/help.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "ckpt/base/error.h"
#include "tools/help/completion.h"
#include "tools/help/families.h"
#include "tools/help/man_page.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

namespace fs = std::filesystem;

using Completion = std::string (*)(const CommandDescription&);

const std::map<std::string, Completion> kShells = {
    {"bash", bash_completion}, {"fish", fish_completion}, {"zsh", zsh_completion}};

constexpr const char* kCompletionHelp = R"(Examples:
  . <(ferry completion bash)                                         for this shell
  ferry completion bash > ~/.local/share/bash-completion/completions/ferry
  ferry completion zsh > ~/.zfunc/_ferry                             a folder of $fpath
  ferry completion fish > ~/.config/fish/completions/ferry.fish
)";

[[noreturn]] void fail_unknown(const std::string& word, const CommandDescription& parent) {
  std::vector<std::string> names, below;
  for (const CommandDescription& command : parent.commands) {
    names.push_back(command.words.back());
    for (const CommandDescription& next : command.commands) {
      below.push_back(command.words.back() + " " + next.words.back());
    }
  }
  const std::string name = fmt::to_string(fmt::join(parent.words, " "));
  if (names.empty()) {
    fail(ErrorKind::invalid, "{} has no command '{}'; see: ferry help {}", name, printable(word),
         fmt::join(parent.words.begin() + 1, parent.words.end(), " "));
  }
  fail(ErrorKind::invalid, "{}",
       unknown_command(word, parent.words.size() == 1 ? "" : name, names, below));
}

const CommandDescription& find(const CommandDescription& program,
                               const std::vector<std::string>& words) {
  const CommandDescription* found = &program;
  for (const std::string& word : words) {
    const CommandDescription* next = nullptr;
    for (const CommandDescription& below : found->commands) {
      if (below.words.back() == word) next = &below;
    }
    if (!next) fail_unknown(word, *found);
    found = next;
  }
  return *found;
}

void write_file(const fs::path& path, const std::string& content) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) {
    fail(ErrorKind::io, "cannot create {}: {}", path.parent_path().string(), error.message());
  }
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) fail(ErrorKind::io, "cannot write {}", path.string());
}

void write_man_pages(const CommandDescription& command, const std::string& version,
                     const fs::path& folder) {
  write_file(folder / (man_page_name(command) + ".1"), man_page(command, version));
  for (const CommandDescription& below : command.commands) {
    write_man_pages(below, version, folder);
  }
}

// What an installation has below share/.
void write_shared_files(const CommandDescription& program, const std::string& version,
                        const fs::path& folder) {
  write_man_pages(program, version, folder / "man/man1");
  write_file(folder / "bash-completion/completions/ferry", bash_completion(program));
  write_file(folder / "zsh/site-functions/_ferry", zsh_completion(program));
  write_file(folder / "fish/vendor_completions.d/ferry.fish", fish_completion(program));
}

struct HelpFlags {
  std::vector<std::string> words;
  bool man = false, json = false, markdown = false;
  std::string folder;
};

void run_help(const HelpFlags& flags, const HelpTexts& texts) {
  const bool families = flags.words == std::vector<std::string>{"families"};
  if (!families && (flags.json || flags.markdown)) {
    fail(ErrorKind::invalid, "--json and --markdown go with: ferry help families");
  }
  if (families) {
    print(flags.json ? families_json() : families_table(flags.markdown));
  } else if (!flags.folder.empty()) {
    write_shared_files(texts.description(), texts.version, flags.folder);
  } else if (flags.man) {
    print(man_page(find(texts.description(), flags.words), texts.version));
  } else {
    print(find(texts.description(), flags.words).text);
  }
}

}  // namespace

void add_help(Command& program, const HelpTexts& texts) {
  Command help = program.add_command("help", "Show how to use a command");
  const auto flags = std::make_shared<HelpFlags>();
  help.add_option(
          "COMMAND", flags->words,
          "The command, such as: data merge; or families, for a table of the model families")
      .type_name("");
  help.add_flag("--json", flags->json, "families: print JSON");
  help.add_flag("--markdown", flags->markdown, "families: print a Markdown table");
  help.add_flag("--man", flags->man, "Print a man page: ferry help --man convert | man -l -");
  help.add_option("--write-shared-files", flags->folder,
                  "Write man pages and completions to DIR, laid out as in an installation's share/")
      .type_name("DIR")
      .check(not_empty("give the folder to write to"));
  help.footer(
      "Examples:\n  ferry help data merge\n  ferry help families\n"
      "  ferry help --man convert | man -l -\n");
  help.action([flags, &texts] { run_help(*flags, texts); });

  program.add_command("version", "Show the version").action([&texts] {
    print(texts.version.empty() ? "" : fmt::format("ferry {}\n", texts.version));
  });

  Command completion = program.add_command("completion", "Write completions for a shell");
  const auto shell = std::make_shared<Completion>(nullptr);
  completion.add_choice("SHELL", *shell, kShells, "bash, fish or zsh").required().type_name("");
  completion.footer(kCompletionHelp);
  completion.action([shell, &texts] { print((*shell)(texts.description())); });
}

}  // namespace ferry::tool
