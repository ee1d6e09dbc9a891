#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/data/commands.h"
#include "tools/data/data_report.h"
#include "tools/data/dataset/check_program.h"
#include "tools/data/token_files.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/exit_code.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

struct CheckDataFlags {
  std::vector<std::string> paths;
  std::optional<int64_t> vocabulary_size;
  ProgramCheckOptions program;
  std::optional<double> timeout;
  bool json = false, progress = false;
};

constexpr const char* kCheckDataExamples = R"(Examples:
  ferry data check corpus_text_document --vocab-size 50257
  ferry data check data/ --json | jq '.datasets[] | select(.problems != [])'
  ferry data check --dataset 'python3 examples/dataset/dataset.py'

Exits with 0 if no errors were found, with 4 if some were.
)";

int exit_code_of(size_t problems) {
  if (problems == 0) return kExitOk;
  print_aside(
      fmt::format("ferry: error: {} problem{} found\n", problems, problems == 1 ? "" : "s"));
  return exit_code(ErrorKind::corrupt);
}

int check_dataset_program(const CheckDataFlags& flags) {
  ProgramCheckOptions options = flags.program;
  options.seconds_a_line = flags.timeout.value_or(options.seconds_a_line);
  const InterruptScope interrupt;
  const CheckedProgram checked = check_program(options, interrupt.flag());
  print(flags.json ? json_text(to_json(checked)) : to_text(checked));
  return exit_code_of(problem_count(checked));
}

int check_data(const CheckDataFlags& flags) {
  if (!flags.program.command.empty()) {
    if (!flags.paths.empty() || flags.vocabulary_size) {
      fail(ErrorKind::invalid,
           "--dataset checks a program, and takes neither token files nor --vocab-size");
    }
    return check_dataset_program(flags);
  }
  if (flags.paths.empty()) {
    fail(ErrorKind::invalid, "what is to be checked? Give a PREFIX, or a program by --dataset");
  }
  std::vector<CheckedTokens> checked;
  {
    const InterruptScope interrupt;
    ProgressLine line("checking", flags.progress);
    const Watch watch{[&](const Progress& progress) { line.show(progress); }, interrupt.flag()};
    for (const std::string& prefix : prefixes_of(*posix_file_system(), flags.paths)) {
      CheckedTokens one{prefix, {}};
      try {
        one.check = check_token_files(*open_tokens(prefix), flags.vocabulary_size, watch);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::corrupt && error.kind() != ErrorKind::not_found) throw;
        if (flags.paths.size() == 1 && error.kind() == ErrorKind::not_found) throw;
        one.check.problems.push_back(error.what());
      }
      checked.push_back(std::move(one));
    }
  }
  print(flags.json ? json_text(to_json(checked)) : to_text(checked));
  return exit_code_of(problem_count(checked));
}

void add_dataset_options(Command& command, CheckDataFlags& flags) {
  command
      .add_option("--dataset", flags.program.command,
                  "Check a dataset program instead: whether it keeps the data contract (one line "
                  "in, one item out)")
      .type_name("COMMAND")
      .check(not_empty("give the command that starts the dataset's program"));
  command
      .add_option("--items", flags.program.check.items, "With --dataset: items to read per epoch")
      .type_name("N")
      .default_text("32")
      .check(whole_number(1, 1'000'000));
  command.add_option("--epochs", flags.program.check.epochs, "With --dataset: epochs to read")
      .type_name("N")
      .default_text("2")
      .check(whole_number(1, 1'000'000));
  command
      .add_option("--processes", flags.program.processes,
                  "With --dataset: copies of the program to start, one per rank")
      .type_name("N")
      .default_text("3")
      .check(whole_number(1, 64));
  command
      .add_option("--timeout", flags.timeout,
                  "With --dataset: time the program may take to answer a line")
      .type_name("SECONDS")
      .default_text("60")
      .check(not_negative());
}

}  // namespace

void add_check_data(Command& data, int& exit_code) {
  auto flags = std::make_shared<CheckDataFlags>();
  Command command =
      data.add_command("check", "Check token files, or a dataset program, for errors");
  command
      .add_option("PREFIX", flags->paths,
                  "Prefixes of PREFIX.bin and PREFIX.idx, or folders of them")
      .type_name("");
  command
      .add_option("--vocab-size", flags->vocabulary_size,
                  "Report tokens of N or more as errors (default: only negative ones)")
      .type_name("N")
      .check(whole_number(1, INT64_MAX));
  add_dataset_options(command, *flags);
  add_progress_option(command, flags->progress);
  add_json_option(command, flags->json);
  command.footer(kCheckDataExamples);
  command.action([flags, &exit_code] { exit_code = check_data(*flags); });
}

}  // namespace ferry::tool
