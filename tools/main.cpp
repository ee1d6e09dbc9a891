#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>
#include <sstream>

#include "ckpt/base/error.h"
#include "mpi/launcher.h"
#include "mpi/process_group.h"
#include "tools/commands.h"
#include "tools/terminal/exit_code.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

int report(ErrorKind kind, const std::string& message, const std::string& what_to_do) {
  print_aside(fmt::format("ferry: error: {}\n", printable(message, true)));
  if (!what_to_do.empty()) print_aside(fmt::format("ferry: hint: {}\n", what_to_do));
  return exit_code(kind);
}

int report(ErrorKind kind, const std::string& message) { return report(kind, message, hint(kind)); }

// --help and --version.
int exit_with_text(const CLI::App& program, const CLI::ParseError& error) {
  std::ostringstream text;
  program.exit(error, text, text);
  try {
    print(text.str());
  } catch (const Error& problem) {
    return report(problem.kind(), problem.what());
  }
  return kExitOk;
}

// The parser's own words, but for a first word that is no command.
std::string problem_of(const CLI::ParseError& error, const CLI::App& program) {
  const std::vector<std::string> rest = program.remaining();
  const bool is_word = !rest.empty() && !rest.front().starts_with('-');
  if (!program.get_subcommands().empty() || !is_word) return error.what();
  std::string names;
  for (const CLI::App* command : program.get_subcommands({})) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return fmt::format("'{}' is no command; the commands are {}", rest.front(), names);
}

// A checkpoint may have a file for each of thousands of ranks; where few may be open, they are
// closed and opened again and again.
void open_all_files_that_are_allowed() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int run(const Processes& processes, int argc, char** argv) {
  CLI::App program("Opens, converts and describes checkpoints of language models.", "ferry");
  program.set_version_flag("--version", "ferry " FERRY_VERSION);
  program.require_subcommand(1);
  program.footer(
      "Examples:\n  ferry inspect runs/llama\n"
      "  ferry convert runs/llama llama-hf --to hf\n"
      "  ferry verify llama-hf\n"
      "  ferry diff runs/llama llama-hf\n"
      "  ferry prune runs/llama --keep-last 3 --keep-every 1000\n\n" +
      exit_code_help());
  add_inspect(program);
  add_convert(program, processes);
  add_reshard(program, processes);
  add_verify(program);
  add_prune(program);
  add_report(program);
  for (CLI::App* command : program.get_subcommands([](const CLI::App* app) {
         return app->get_name() == "prune" || app->get_name() == "report";
       })) {
    command->parse_complete_callback(
        [name = command->get_name()] { require_one_process("ferry " + name); });
  }
  int exit_code = kExitOk;
  add_diff(program, exit_code);
  try {
    program.parse(argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return exit_with_text(program, error);
    const auto commands = program.get_subcommands();
    const std::string command = commands.empty() ? "" : " " + commands.front()->get_name();
    return report(ErrorKind::invalid, problem_of(error, program),
                  fmt::format("ferry{} --help tells how to use it", command));
  } catch (const Error& error) {
    return report(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return report(ErrorKind::exhausted, "out of memory");
  } catch (const std::exception& error) {
    return report(ErrorKind::internal, error.what());
  }
}

}  // namespace
}  // namespace ferry::tool

int main(int argc, char** argv) {
  using namespace ferry::tool;
  hold_standard_streams();
  open_all_files_that_are_allowed();
  std::shared_ptr<ferry::Group> group;  // until all is told
  const Processes processes = [&group] {
    group = ferry::process_group();
    if (group->rank() > 0) silence_standard_streams();  // rank 0 speaks for all
    return group;
  };
  return run(processes, argc, argv);
}
