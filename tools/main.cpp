#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <sstream>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "ckpt/group/mpi/launcher.h"
#include "ckpt/group/mpi/process_group.h"
#include "tools/commands.h"
#include "tools/error_report.h"
#include "tools/help/help.h"
#include "tools/launched_processes.h"
#include "tools/terminal/exit_code.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"
#include "tools/train/train.h"
#include "trainer/gpu/gpu_device.h"

namespace ferry::tool {
namespace {

// Names what must be given: "ferry report [OPTIONS] PATH -o FILE".
class Usage : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string text = CLI::Formatter::make_usage(app, std::move(name));
    text.erase(text.find_last_not_of('\n') + 1);
    for (const CLI::Option* option : app->get_options()) {
      if (!option->get_required() || !option->nonpositional()) continue;
      const bool is_short = !option->get_snames().empty();
      text += is_short ? " -" + option->get_snames().front() : " --" + option->get_lnames().front();
      text += " " + option->get_type_name();
    }
    return text + "\n";
  }
};

// --help and --version.
int exit_with_text(const CLI::App& program, const CLI::ParseError& error,
                   const Reporter& reporter) {
  std::ostringstream text;
  program.exit(error, text, text);
  try {
    print(text.str());
  } catch (const Error& problem) {
    return reporter.report(problem.kind(), problem.what());
  }
  return kExitOk;
}

// The command that a line names: "ferry", "ferry data", "ferry data merge".
struct GivenCommand {
  const CLI::App* app;
  std::string words = "ferry";
};

GivenCommand given_command(const CLI::App& program) {
  GivenCommand given{&program};
  while (!given.app->get_subcommands().empty()) {
    given.app = given.app->get_subcommands().front();
    given.words += " " + given.app->get_name();
  }
  return given;
}

// "; the nearest is --iteration", where a long option of the command is near.
std::string nearest_option(const CLI::App& command, const std::string& word) {
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
  const std::string nearest = nearest_word(word.substr(0, word.find('=')), options);
  return nearest.empty() ? "" : "; the nearest is " + nearest;
}

bool has_option(const CLI::App& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  return std::ranges::any_of(command.get_options(), [&](const CLI::Option* option) {
    return name.starts_with('-') && option->check_name(name);
  });
}

// Words that the parser could not place: an option that the command does not have, else a name too
// many. What else is missing may be meant by them. After -- every word is a name: the parser
// leaves the mark out where the command has all its names by then.
std::string problem_of_rest(const CLI::App& program, const GivenCommand& given, bool has_mark) {
  const std::vector<std::string> rest = program.remaining(true);
  const auto mark = std::ranges::find(rest, "--");
  const auto option = std::find_if(rest.begin(), mark, [](const std::string& word) {
    return word.size() > 1 && word.starts_with('-');
  });
  const bool is_known = option != mark && has_option(*given.app, *option);
  if (is_known && !has_mark) {
    return fmt::format("{} is an option of {}; put it after that name", *option, given.words);
  }
  if (option != mark && !is_known) {
    return fmt::format("unknown option '{}' of {}{}", *option, given.words,
                       nearest_option(*given.app, *option));
  }
  const auto name = std::ranges::find_if(rest, [](const auto& word) { return word != "--"; });
  if (name == rest.end()) return "";
  return fmt::format(
      "unexpected argument '{}' of {}{}", *name, given.words,
      is_known || mark <= name ? "; after -- everything is a name, options too" : "");
}

// An option that is given twice where it takes one value, or without its value.
std::string problem_of_values(const CLI::ParseError& error, const CLI::App& command) {
  if (error.get_name() != "ArgumentMismatch") return "";
  const std::string_view text = error.what();
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (!text.starts_with(name + ": ")) continue;
    if (option->count() > 1 && option->get_items_expected_max() == 1) {
      return fmt::format("{} is given {} times; give it once", name, option->count());
    }
    if (text.ends_with(" missing")) {
      return fmt::format("{} needs a value: {}", name, option->get_type_name());
    }
  }
  return "";
}

std::vector<std::string> names_of_commands(const CLI::App& app, const std::string& before = "") {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(before + command->get_name());
  }
  return names;
}

// The parser's own words where none of the usual mistakes was made.
std::string problem_of(const CLI::ParseError& error, const CLI::App& program, bool has_mark) {
  const GivenCommand given = given_command(program);
  const std::vector<std::string> names = names_of_commands(*given.app);
  if (names.empty()) {
    std::string problem = problem_of_rest(program, given, has_mark);
    if (problem.empty()) problem = problem_of_values(error, *given.app);
    return problem.empty() ? error.what() : problem;
  }
  const std::vector<std::string> rest = program.remaining(true);
  const std::string parent = given.app == &program ? "" : given.words;
  if (rest.empty()) {
    return fmt::format("which command? The commands{} are {}",
                       parent.empty() ? "" : " of " + parent, fmt::join(names, ", "));
  }
  const bool is_option = rest.front().starts_with('-');
  if (is_option) {
    return fmt::format("unknown option '{}' of {}{}", rest.front(), given.words,
                       nearest_option(*given.app, rest.front()));
  }
  std::vector<std::string> below;
  for (const CLI::App* command : given.app->get_subcommands({})) {
    const auto more = names_of_commands(*command, command->get_name() + " ");
    below.insert(below.end(), more.begin(), more.end());
  }
  return unknown_command(rest.front(), parent, names, below);
}

HelpTexts help_texts(CLI::App& program) {
  HelpTexts texts;
  texts.description = [&program] {
    CommandDescription all = describe(program, {"ferry"});
    for (CommandDescription& command : all.commands) {
      if (command.words.back() == "train") command = describe_train();
    }
    return all;
  };
  texts.version = FERRY_VERSION;
  return texts;
}

// A checkpoint may have a file for each of thousands of ranks; where few may be open, they are
// closed and opened again and again.
void open_all_files_that_are_allowed() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// A file that may not grow any more (ulimit -f) is an error of writing then, after which what was
// begun is removed.
void take_limits_of_files_for_errors() { ::signal(SIGXFSZ, SIG_IGN); }

// `data tokenize` divides its work itself.
std::vector<CLI::App*> commands_of_one_process(CLI::App& program) {
  const auto is_of_one = [](const CLI::App* command) { return command->get_name() != "tokenize"; };
  std::vector<CLI::App*> commands = program.get_subcommand("data")->get_subcommands(is_of_one);
  for (const char* name : {"prune", "report", "estimate"})
    commands.push_back(program.get_subcommand(name));
  return commands;
}

// Its arguments are Megatron-LM's, with a parser of their own.
int run_train(LaunchedProcesses& launch, const std::vector<std::string>& words,
              const Reporter& reporter) {
  try {
    // The last rank logs iterations, as Megatron-LM's does.
    const auto processes = [&launch] {
      return launch.join_by_address(LaunchedProcesses::Output::of_all);
    };
    const auto links = [&launch](const std::shared_ptr<Group>& group) {
      return launch.links(group);
    };
    const int code = tool::run_train(words, {processes, links, launcher_of, gpu_count, gpu_device,
                                             process_environment()("OMP_NUM_THREADS")});
    launch.wait_for_all();
    return code;
  } catch (const SharedError&) {
    return reporter.report_current_exception();
  } catch (...) {
    launch.abort();
    return reporter.report_current_exception();
  }
}

// The words after -- of a command that passes them to another parser.
std::vector<std::string> take_words_after_mark(int& argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "estimate") return {};
  char** const mark = std::find(argv, argv + argc, std::string_view("--"));
  if (mark == argv + argc) return {};
  std::vector<std::string> words(mark + 1, argv + argc);
  argc = static_cast<int>(mark - argv);
  return words;
}

int run(LaunchedProcesses& launch, int argc, char** argv, const Reporter& reporter) {
  const Processes processes = [&launch] {
    return launch.join(LaunchedProcesses::Output::of_the_first);
  };
  if (argc > 1 && std::string_view(argv[1]) == "train") {
    return run_train(launch, std::vector<std::string>(argv + 2, argv + argc), reporter);
  }
  std::vector<std::string> rest = take_words_after_mark(argc, argv);
  CLI::App program(
      "Convert, reshard and check checkpoints of language models, prepare data and train", "ferry");
  program.set_version_flag("-V,--version", "ferry " FERRY_VERSION);
  program.require_subcommand(1);
  program.formatter(std::make_shared<Usage>());
  program.footer(
      "Examples:\n  ferry inspect runs/llama\n"
      "  ferry convert runs/llama llama-hf --to hf\n"
      "  ferry verify llama-hf\n"
      "  ferry check llama-hf --for vllm\n"
      "  ferry diff runs/llama llama-hf\n"
      "  ferry prune runs/llama --keep-last 3 --keep-every 1000\n"
      "  ferry convert --help                        the options of a command\n\n" +
      exit_code_help());
  Command commands(program);
  add_inspect(commands);
  add_convert(commands, processes);
  add_reshard(commands, processes);
  int exit_code = kExitOk;
  add_verify(commands, exit_code);
  add_check(commands, exit_code);
  add_prune(commands);
  add_seal(commands);
  add_diff(commands, exit_code);
  add_report(commands);
  add_estimate(commands, std::move(rest));
  program.add_subcommand("train",
                         describe_train().help);  // to be listed: run_train() reads its line
  add_launch(commands);
  add_runs(commands, exit_code);
  add_data(commands, exit_code);
  for (CLI::App* command : commands_of_one_process(program)) {
    const std::string name = command->get_parent()->get_name() + " " + command->get_name();
    command->parse_complete_callback([name] { require_one_process(name); });
  }
  const HelpTexts texts = help_texts(program);
  add_help(commands, texts);
  try {
    program.parse(whole_arguments(argc, argv));
    launch.wait_for_all();
    return exit_code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return exit_with_text(program, error, reporter);
    const bool has_mark = std::find(argv, argv + argc, std::string_view("--")) != argv + argc;
    return reporter.report(
        ErrorKind::invalid, without_marks(problem_of(error, program, has_mark)),
        fmt::format("{} --help shows how to use it", given_command(program).words));
  } catch (const SharedError&) {
    return reporter.report_current_exception();
  } catch (...) {
    launch.abort();
    return reporter.report_current_exception();
  }
}

}  // namespace
}  // namespace ferry::tool

int main(int argc, char** argv) {
  using namespace ferry::tool;
  if (argc > 1 && std::string_view(argv[1]) == "train") {
    start_with_short_spins(argv);
    let_streams_overlap();
  }
  install_terminate_handler();
  hold_standard_streams();
  open_all_files_that_are_allowed();
  take_limits_of_files_for_errors();
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  const Reporter reporter(json);
  LaunchedProcesses launch;
  const int exit_code = run(launch, argc, argv, reporter);
  launch.end(exit_code, reporter);
  return exit_code;
}
