#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/data/commands.h"
#include "tools/data/data_report.h"
#include "tools/data/token_files.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr int64_t kMostTokensShown = 64;

struct InspectDataFlags {
  std::string path;
  bool largest_token = false, json = false, progress = false;
  std::optional<int64_t> document;
};

constexpr const char* kInspectDataExamples = R"(Examples:
  ferry data inspect corpus_text_document                     PREFIX of PREFIX.bin and PREFIX.idx
  ferry data inspect corpus_text_document --largest-token     reads all tokens
  ferry data inspect corpus_text_document --document 17       its first tokens
)";

void inspect_data(const InspectDataFlags& flags) {
  const auto dataset = open_tokens(flags.path);
  InspectedTokens seen;
  seen.prefix = dataset->prefix();
  seen.type = dataset->type();
  seen.documents = dataset->documents();
  seen.sequences = dataset->sequences();
  seen.tokens = count_all_tokens(*dataset);
  seen.token_bytes = dataset->token_bytes();
  seen.has_modes = dataset->has_modes();
  seen.lengths = summarize_lengths(*dataset);
  if (flags.largest_token) {
    const InterruptScope interrupt;
    ProgressLine line("reading", flags.progress);
    seen.largest_token = largest_token(
        *dataset, {[&](const Progress& progress) { line.show(progress); }, interrupt.flag()});
  }
  if (flags.document) {
    seen.document = flags.document;
    seen.document_tokens = first_tokens(*dataset, *flags.document, kMostTokensShown);
  }
  print(flags.json ? json_text(to_json(seen)) : to_text(seen));
}

}  // namespace

void add_inspect_data(Command& data) {
  auto flags = std::make_shared<InspectDataFlags>();
  Command command = data.add_command("inspect", "Show what token files contain");
  command.add_option("PREFIX", flags->path, "Prefix of PREFIX.bin and PREFIX.idx")
      .required()
      .type_name("");
  command.add_flag("--largest-token", flags->largest_token, "Read all tokens to find the largest");
  command
      .add_option("--document", flags->document,
                  fmt::format("Print the first {} tokens of document N, from 0", kMostTokensShown))
      .type_name("N")
      .check(whole_number(0, INT64_MAX));
  add_progress_option(command, flags->progress);
  add_json_option(command, flags->json);
  command.footer(kInspectDataExamples);
  command.action([flags] { inspect_data(*flags); });
}

}  // namespace ferry::tool
