#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/group/message_group.h"
#include "ckpt/group/mpi/launcher.h"
#include "ckpt/group/mpi/process_group.h"
#include "ckpt/group/tcp/mesh.h"
#include "ckpt/group/together.h"
#include "tools/commands.h"
#include "tools/help/help.h"
#include "tools/terminal/exit_code.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"
#include "tools/train/train.h"
#include "trainer/communicator/mpi/process_links.h"
#include "trainer/communicator/tcp/tcp_links.h"
#include "trainer/gpu/gpu_device.h"

namespace ferry::tool {
namespace {

// Tells of an error: people on stderr and, where JSON is asked for, a script on stdout.
class Reporter {
 public:
  explicit Reporter(bool json) : json_(json) {}

  int report(ErrorKind kind, const std::string& message, const std::string& what_to_do) const {
    print_aside(fmt::format("ferry: error: {}\n", printable(message, true)));
    if (!what_to_do.empty()) print_aside(fmt::format("ferry: hint: {}\n", what_to_do));
    if (json_) print_error(kind, message, what_to_do);
    return exit_code(kind);
  }
  int report(ErrorKind kind, const std::string& message) const {
    return report(kind, message, hint(kind));
  }

 private:
  static void print_error(ErrorKind kind, const std::string& message,
                          const std::string& what_to_do) {
    nlohmann::json error = {
        {"kind", name(kind)}, {"message", message}, {"exit_code", exit_code(kind)}};
    if (!what_to_do.empty()) error["hint"] = what_to_do;
    try {
      print(json_text({{"error", std::move(error)}}));
    } catch (const Error&) {
      // It stands on stderr.
    }
  }

  bool json_;
};

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

// The command's parser; throws where there is none.
const CLI::App& find_command(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* found = &program;
  for (const std::string& word : words) {
    const auto named = found->get_subcommands(
        [&](const CLI::App* command) { return command->get_name() == word; });
    if (named.empty()) {
      fail(ErrorKind::invalid, "'{}' is no command; 'ferry help' lists them", word);
    }
    found = named.front();
  }
  return *found;
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
  texts.text = [&program](const std::vector<std::string>& words) {
    if (words == std::vector<std::string>{"train"}) return train_help();
    std::vector<std::string> line = {"ferry"};
    line.insert(line.end(), words.begin(), words.end());
    return help_text(find_command(program, words), line);
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

// Where what ends the program is told. A terminate handler can reach nothing but what is global.
std::atomic<int> last_words{STDERR_FILENO};

// A destructor may want memory (nlohmann::json's does), and can throw nothing where there is none.
[[noreturn]] void on_terminate() noexcept {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    constexpr std::string_view kText = "ferry: error: out of memory\n";
    if (::write(last_words, kText.data(), kText.size()) < 0) std::abort();
    std::_Exit(exit_code(ErrorKind::exhausted));
  } catch (...) {
    // A bug: what it is, a debugger tells.
  }
  std::abort();
}

// The processes of one launch, once the command has joined them.
class Launch {
 public:
  enum class Output { of_the_first, of_all };

  // Rank 0 alone tells of errors.
  std::shared_ptr<Group> join(Output output) {
    group_ = process_group();
    if (group_->rank() == 0) return group_;
    silenced_ = silence_standard_error();
    last_words = silenced_;
    if (output == Output::of_the_first) silence_standard_output();
    return group_;
  }

  // The same of processes that were told where rank 0 listens; all others as join() has them.
  std::shared_ptr<Group> join_by_address(Output output) {
    const auto place = meeting_place(process_environment());
    if (!place) return join(output);
    if (place->rank != 0) silenced_ = silence_standard_error();
    try {
      mesh_ = std::make_shared<TcpMesh>(*place);
    } catch (const Error&) {
      restore_standard_error(silenced_);  // there is no rank 0 that could tell it
      throw;
    }
    group_ = message_group(tcp_transport(mesh_));
    return group_;
  }
  std::shared_ptr<Links> links(const std::shared_ptr<Group>& group) const {
    return mesh_ ? tcp_links(mesh_, group) : process_links(group);
  }

  // Throws what ended another one's work.
  void wait_for_all() {
    if (group_) group_->barrier();
  }

  // For a handler of exceptions that this rank alone may have met.
  void abort() noexcept {
    if (group_) abort_with_current_exception(*group_);
  }

  void end(int exit_code, const Reporter& reporter) {
    if (!group_) return;
    if (mesh_) return end_mesh(reporter);
    end_process_group(std::move(group_), exit_code, [&](const Error& error) {
      restore_standard_error(silenced_);
      reporter.report(error.kind(), error.what());
    });
  }

 private:
  // Where rank 0 has gone, each rank tells what it knows.
  void end_mesh(const Reporter& reporter) {
    constexpr std::chrono::seconds kPatience{5};
    group_.reset();
    mesh_->conclude(kPatience);
    const auto failure = mesh_->failure();
    if (mesh_->rank() == 0 || !failure || !failure->is_lost || failure->rank != 0) return;
    restore_standard_error(silenced_);
    reporter.report(failure->error.kind(), fmt::format("rank 0 {}", failure->error.what()));
  }

  std::shared_ptr<Group> group_;
  std::shared_ptr<TcpMesh> mesh_;
  int silenced_ = -1;
};

// `data tokenize` divides its work itself.
std::vector<CLI::App*> commands_of_one_process(CLI::App& program) {
  const auto is_of_one = [](const CLI::App* command) { return command->get_name() != "tokenize"; };
  std::vector<CLI::App*> commands = program.get_subcommand("data")->get_subcommands(is_of_one);
  for (const char* name : {"prune", "report", "estimate"})
    commands.push_back(program.get_subcommand(name));
  return commands;
}

// Of the exception that is being handled.
int report_any(const Reporter& reporter) {
  try {
    throw;
  } catch (const Error& error) {
    return reporter.report(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return reporter.report(ErrorKind::exhausted, "out of memory");
  } catch (const std::exception& error) {
    return reporter.report(ErrorKind::internal, error.what());
  } catch (...) {
    return reporter.report(ErrorKind::internal, "an exception that is no std::exception");
  }
}

int report_current_exception(const Reporter& reporter) noexcept {
  try {
    return report_any(reporter);
  } catch (...) {  // no memory for its message
    print_aside("ferry: error: out of memory\n");
    return exit_code(ErrorKind::exhausted);
  }
}

// The launcher that speaks of so many processes.
std::string launcher_of(int processes) {
  for (const Launcher& launcher : launchers(process_environment())) {
    if (launcher.processes == processes) return launcher.name;
  }
  return "the launcher";
}

// Its arguments are Megatron-LM's, with a parser of their own.
int run_train(Launch& launch, const std::vector<std::string>& words, const Reporter& reporter) {
  try {
    // The last rank tells of iterations, as Megatron-LM's does.
    const auto processes = [&launch] { return launch.join_by_address(Launch::Output::of_all); };
    const auto links = [&launch](const std::shared_ptr<Group>& group) {
      return launch.links(group);
    };
    tool::run_train(words, {processes, links, launcher_of, gpu_count, gpu_device,
                            process_environment()("OMP_NUM_THREADS")});
    launch.wait_for_all();
    return kExitOk;
  } catch (const SharedError&) {
    return report_current_exception(reporter);
  } catch (...) {
    launch.abort();
    return report_current_exception(reporter);
  }
}

// Of a command that takes arguments of another parser behind --: they are none of this one's.
std::vector<std::string> take_words_behind_mark(int& argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "estimate") return {};
  char** const mark = std::find(argv, argv + argc, std::string_view("--"));
  if (mark == argv + argc) return {};
  std::vector<std::string> words(mark + 1, argv + argc);
  argc = static_cast<int>(mark - argv);
  return words;
}

int run(Launch& launch, int argc, char** argv, const Reporter& reporter) {
  const Processes processes = [&launch] { return launch.join(Launch::Output::of_the_first); };
  if (argc > 1 && std::string_view(argv[1]) == "train") {
    return run_train(launch, std::vector<std::string>(argv + 2, argv + argc), reporter);
  }
  std::vector<std::string> behind = take_words_behind_mark(argc, argv);
  CLI::App program("Opens, converts and describes checkpoints of language models.", "ferry");
  program.set_version_flag("-V,--version", "ferry " FERRY_VERSION);
  program.require_subcommand(1);
  program.formatter(std::make_shared<Usage>());
  program.footer(
      "Examples:\n  ferry inspect runs/llama\n"
      "  ferry convert runs/llama llama-hf --to hf\n"
      "  ferry verify llama-hf\n"
      "  ferry diff runs/llama llama-hf\n"
      "  ferry prune runs/llama --keep-last 3 --keep-every 1000\n\n" +
      exit_code_help());
  Command commands(program);
  add_inspect(commands);
  add_convert(commands, processes);
  add_reshard(commands, processes);
  add_prune(commands);
  add_report(commands);
  add_launch(commands);
  add_runs(commands);
  add_estimate(commands, std::move(behind));
  int exit_code = kExitOk;
  add_data(commands, exit_code);
  program.add_subcommand("train",
                         describe_train().help);  // to be listed: run_train() reads its line
  for (CLI::App* command : commands_of_one_process(program)) {
    const std::string name = command->get_parent()->get_name() + " " + command->get_name();
    command->parse_complete_callback([name] { require_one_process(name); });
  }
  add_verify(commands, exit_code);
  add_diff(commands, exit_code);
  const HelpTexts texts = help_texts(program);
  add_help(commands, texts);
  try {
    program.parse(argc, argv);
    launch.wait_for_all();
    return exit_code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return exit_with_text(program, error, reporter);
    const auto given = program.get_subcommands();
    const std::string command = given.empty() ? "" : " " + given.front()->get_name();
    return reporter.report(ErrorKind::invalid, problem_of(error, program),
                           fmt::format("ferry{} --help tells how to use it", command));
  } catch (const SharedError&) {
    return report_current_exception(reporter);
  } catch (...) {
    launch.abort();
    return report_current_exception(reporter);
  }
}

}  // namespace
}  // namespace ferry::tool

int main(int argc, char** argv) {
  using namespace ferry::tool;
  if (argc > 1 && std::string_view(argv[1]) == "train") start_with_short_spins(argv);
  std::set_terminate(on_terminate);
  hold_standard_streams();
  open_all_files_that_are_allowed();
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  const Reporter reporter(json);
  Launch launch;
  const int exit_code = run(launch, argc, argv, reporter);
  launch.end(exit_code, reporter);
  return exit_code;
}
