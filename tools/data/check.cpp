#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/data/commands.h"
#include "tools/data/data_report.h"
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
  bool json = false;
};

constexpr const char* kCheckDataExamples = R"(Examples:
  ferry data check corpus_text_document --vocab-size 50257
  ferry data check data/ --json | jq '.datasets[] | select(.problems != [])'

Exits with 0 when nothing is wrong, with 4 when something is.
)";

int check_data(const CheckDataFlags& flags) {
  std::vector<CheckedTokens> checked;
  {
    const InterruptScope interrupt;
    ProgressLine line("checking");
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
  const size_t problems = problem_count(checked);
  if (problems == 0) return kExitOk;
  print_aside(
      fmt::format("ferry: error: {} problem{} found\n", problems, problems == 1 ? "" : "s"));
  return exit_code(ErrorKind::corrupt);
}

}  // namespace

void add_check_data(Command& data, int& exit_code) {
  auto flags = std::make_shared<CheckDataFlags>();
  Command command = data.add_command("check", "Look for what is wrong in token files");
  command.add_option("PREFIX", flags->paths, "Of PREFIX.bin and PREFIX.idx, or folders of them")
      .required()
      .type_name("");
  command
      .add_option("--vocab-size", flags->vocabulary_size,
                  "Tokens of N or more are wrong (default: any that are not negative are right)")
      .type_name("N")
      .check(whole_number(1, INT64_MAX));
  add_json_option(command, flags->json);
  command.footer(kCheckDataExamples);
  command.action([flags, &exit_code] { exit_code = check_data(*flags); });
}

}  // namespace ferry::tool
