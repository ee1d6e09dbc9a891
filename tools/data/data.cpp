#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/data/bytes.h"
#include "tools/data/data_report.h"
#include "tools/data/token_files.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/exit_code.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"
#include "trainer/data/indexed_dataset_writer.h"

namespace ferry::tool {
namespace {

constexpr int64_t kMostTokensShown = 64;

struct InspectDataFlags {
  std::string path;
  bool largest_token = false, json = false;
  std::optional<int64_t> document;
};

struct CheckDataFlags {
  std::vector<std::string> paths;
  std::optional<int64_t> vocabulary_size;
  bool json = false;
};

struct MergeDataFlags {
  std::vector<std::string> paths;
  std::string output;
  bool sort = false, overwrite = false, dry_run = false, json = false;
};

constexpr const char* kInspectDataExamples = R"(Examples:
  ferry data inspect corpus_text_document                     PREFIX of PREFIX.bin and PREFIX.idx
  ferry data inspect corpus_text_document --largest-token     reads all tokens
  ferry data inspect corpus_text_document --document 17       its first tokens
)";
constexpr const char* kCheckDataExamples = R"(Examples:
  ferry data check corpus_text_document --vocab-size 50257
  ferry data check data/ --json | jq '.datasets[] | select(.problems != [])'

Exits with 0 when nothing is wrong, with 4 when something is.
)";
constexpr const char* kMergeDataExamples = R"(Examples:
  ferry data merge part_0 part_1 part_2 -o whole        in the order given
  ferry data merge parts/ -o whole                      all pairs of a folder, by name
  ferry data merge b a c -o whole --sort --dry-run      what would be written, in the order of names
)";

std::shared_ptr<const IndexedDataset> open_tokens(const std::string& path) {
  return std::make_shared<IndexedDataset>(posix_file_system(), prefix_of(path));
}

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
    ProgressLine line("reading");
    seen.largest_token = largest_token(
        *dataset, {[&](const Progress& progress) { line.show(progress); }, interrupt.flag()});
  }
  if (flags.document) {
    seen.document = flags.document;
    seen.document_tokens = first_tokens(*dataset, *flags.document, kMostTokensShown);
  }
  print(flags.json ? json_text(to_json(seen)) : to_text(seen));
}

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

// The inputs, and what the output will be.
std::vector<std::shared_ptr<const IndexedDataset>> plan(const MergeDataFlags& flags,
                                                        MergedTokens& merged) {
  merged.output = prefix_of(flags.output);
  merged.dry_run = flags.dry_run;
  merged.inputs = prefixes_of(*posix_file_system(), flags.paths);
  if (flags.sort) std::sort(merged.inputs.begin(), merged.inputs.end());
  std::vector<std::shared_ptr<const IndexedDataset>> datasets;
  for (const std::string& prefix : merged.inputs) {
    datasets.push_back(open_tokens(prefix));
    const IndexedDataset& dataset = *datasets.back();
    if (dataset.type() != datasets.front()->type()) {
      fail(ErrorKind::mismatch,
           "{} has tokens of type {}, and {} of type {}; they cannot be merged",
           datasets.front()->name(), torch_name(datasets.front()->type()), dataset.name(),
           torch_name(dataset.type()));
    }
    merged.documents += dataset.documents();
    merged.sequences += dataset.sequences();
    merged.tokens += count_all_tokens(dataset);
    merged.bytes += dataset.token_bytes();
  }
  merged.type = datasets.front()->type();
  merged.bytes += kIndexHeaderBytes + 12 * static_cast<uint64_t>(merged.sequences) +
                  8 * (static_cast<uint64_t>(merged.documents) + 1);
  return datasets;
}

void merge_data(const MergeDataFlags& flags) {
  MergedTokens merged;
  const auto datasets = plan(flags, merged);
  IndexedDatasetWriter::check_target(*posix_file_system(), merged.output, flags.overwrite);
  if (!flags.dry_run) {
    const InterruptScope interrupt;
    ProgressLine line("merging");
    IndexedDatasetWriter writer(posix_file_system(), merged.output, merged.type, flags.overwrite);
    Progress progress{0, merged.bytes};
    for (const auto& dataset : datasets) {
      writer.append(*dataset, [&](uint64_t bytes) {
        interrupt.check();
        progress.bytes_done += bytes;
        line.show(progress);
      });
    }
    writer.commit();
    merged.seconds = line.seconds();
  }
  const std::string text = flags.json ? json_text(to_json(merged)) : to_text(merged);
  if (flags.dry_run) return print(text);
  print_done(text, merged.output + " is complete");
}

void add_inspect_data(Command& data) {
  auto flags = std::make_shared<InspectDataFlags>();
  Command command = data.add_command("inspect", "Tell what token files hold");
  command.add_option("PREFIX", flags->path, "Of PREFIX.bin and PREFIX.idx")
      .required()
      .type_name("");
  command.add_flag("--largest-token", flags->largest_token, "Read all tokens for the largest");
  command
      .add_option("--document", flags->document,
                  fmt::format("Print the first {} tokens of document N, from 0", kMostTokensShown))
      .type_name("N")
      .check(whole_number(0, INT64_MAX));
  add_json_option(command, flags->json);
  command.footer(kInspectDataExamples);
  command.action([flags] { inspect_data(*flags); });
}

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

void add_merge_data(Command& data) {
  auto flags = std::make_shared<MergeDataFlags>();
  Command command = data.add_command("merge", "Write the documents of several token files as one");
  command
      .add_option("PREFIX", flags->paths,
                  "Of PREFIX.bin and PREFIX.idx, or folders of them; all of the same token type")
      .required()
      .type_name("");
  command.add_option("-o,--output", flags->output, "The prefix to write")
      .required()
      .type_name("OUT")
      .check(not_empty("give the prefix of the files to write"));
  command.add_flag("--sort", flags->sort, "In the order of the prefixes' names");
  command.add_flag("--overwrite", flags->overwrite, "Replace files that exist");
  command.add_flag("--dry-run", flags->dry_run, "Tell what would be written, and write nothing");
  add_json_option(command, flags->json);
  command.footer(kMergeDataExamples);
  command.action([flags] { merge_data(*flags); });
}

}  // namespace

void add_data(Command& program, int& exit_code) {
  Command data =
      program.add_command("data", "Inspect, check, merge and make token files (.bin and .idx)");
  data.require_command();
  add_inspect_data(data);
  add_check_data(data, exit_code);
  add_merge_data(data);
  add_data_bytes(data);
}

}  // namespace ferry::tool
