#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>

#include "ckpt/base/error.h"
#include "ops/output/paths.h"
#include "tools/data/commands.h"
#include "tools/data/data_report.h"
#include "tools/data/token_files.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"
#include "trainer/data/documents/indexed_dataset_writer.h"

namespace ferry::tool {
namespace {

struct MergeDataFlags {
  std::vector<std::string> paths;
  std::string output;
  bool sort = false, allow_missing_parts = false, overwrite = false, dry_run = false, json = false,
       progress = false;
};

constexpr const char* kMergeDataExamples = R"(Examples:
  ferry data merge part_0 part_1 part_2 -o whole        in the order given
  ferry data merge parts/ -o whole                      all token files of a folder, by name
  ferry data merge b a c -o whole --sort --dry-run      what would be written, in the order of names
)";

// "corpus_00003-of-00016_text_document": part 3 of 16 of corpus..._text_document.
struct PartName {
  std::string whole;
  int64_t number = 0, count = 0;
};

std::optional<PartName> part_name(const std::string& prefix) {
  static const std::regex kPart("(.*)_([0-9]{5})-of-([0-9]{5})_([^/]*)");
  std::smatch found;
  if (!std::regex_match(prefix, found, kPart)) return std::nullopt;
  return PartName{found.str(1) + "_" + found.str(4), std::stoll(found.str(2)),
                  std::stoll(found.str(3))};
}

// A part that is missing, or one of another division of the same texts, shows in nothing else.
void check_parts(const std::vector<std::string>& prefixes) {
  std::map<std::string, std::map<int64_t, std::set<int64_t>>> parts;  // of each whole and count
  for (const std::string& prefix : prefixes) {
    const auto part = part_name(prefix);
    if (!part) continue;
    parts[part->whole][part->count].insert(part->number);
    if (std::ranges::find(prefixes, part->whole) != prefixes.end()) {
      fail(
          ErrorKind::mismatch,
          "{} is there as a whole and in parts: its texts would be merged twice; name the prefixes "
          "that are meant one by one, or remove the others",
          part->whole);
    }
  }
  for (const auto& [whole, divisions] : parts) {
    if (divisions.size() > 1) {
      fail(ErrorKind::mismatch,
           "{} is there in {} parts and in {}: its texts would be merged twice; name the prefixes "
           "that are meant one by one in a call each, or remove the others",
           whole, divisions.begin()->first, divisions.rbegin()->first);
    }
    const auto& [count, numbers] = *divisions.begin();
    for (int64_t number = 0; number < count; ++number) {
      if (numbers.contains(number)) continue;
      fail(ErrorKind::not_found,
           "of the {} parts of {} number {:05} is not there ({} are); run it again ('ferry data "
           "tokenize --part {}/{}'), or give --allow-missing-parts",
           count, whole, number, numbers.size(), number, count);
    }
  }
}

// The output must be none of the inputs, nor become one: a folder that got it would give its texts
// twice from then on.
void check_output(const FileSystem& file_system, const MergeDataFlags& flags,
                  const MergedTokens& merged) {
  const std::filesystem::path output = canonical(merged.output + ".idx");
  for (const std::string& prefix : merged.inputs) {
    if (canonical(prefix + ".idx") != output) continue;
    fail(ErrorKind::invalid,
         "-o {} is the input {}, which cannot be merged into itself; choose another OUT, or name "
         "the other inputs one by one",
         flags.output, prefix);
  }
  for (const std::string& path : flags.paths) {
    if (!is_folder_of_tokens(file_system, path) || canonical(path) != output.parent_path())
      continue;
    fail(ErrorKind::invalid,
         "-o {} is in the input folder {}, all pairs of which are merged: the next time it would "
         "be one of them; choose an OUT in another folder, or name the inputs one by one",
         flags.output, path);
  }
}

// A prefix and a folder that holds it, or two spellings of one path, name the same pair.
void check_inputs_differ(const std::vector<std::string>& prefixes) {
  std::map<std::filesystem::path, std::string> named;  // what was given for each pair
  for (const std::string& prefix : prefixes) {
    const auto [first, is_new] = named.emplace(canonical(prefix + ".idx"), prefix);
    if (is_new) continue;
    fail(ErrorKind::invalid,
         "{} is named twice{}: its texts would be merged twice; name each pair once, by PREFIX or "
         "by one of its two files (weights in the --data-path of 'ferry train' repeat texts)",
         prefix, first->second == prefix ? "" : ", the first time as " + first->second);
  }
}

// The inputs, and what the output will be.
std::vector<std::shared_ptr<const IndexedDataset>> plan(const MergeDataFlags& flags,
                                                        MergedTokens& merged) {
  merged.output = prefix_of(flags.output);
  merged.dry_run = flags.dry_run;
  const auto file_system = posix_file_system();
  merged.inputs = prefixes_of(*file_system, flags.paths);
  check_output(*file_system, flags, merged);
  check_inputs_differ(merged.inputs);
  if (!flags.allow_missing_parts) check_parts(merged.inputs);
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
    ProgressLine line("merging", flags.progress);
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

}  // namespace

void add_merge_data(Command& data) {
  auto flags = std::make_shared<MergeDataFlags>();
  Command command = data.add_command("merge", "Merge several token files into one");
  command
      .add_option("PREFIX", flags->paths,
                  "Prefixes of PREFIX.bin and PREFIX.idx, or folders of them; all of one token "
                  "type, none twice")
      .required()
      .type_name("");
  command
      .add_option("-o,--output", flags->output,
                  "Prefix to write; must not be an input or in an input folder")
      .required()
      .type_name("OUT")
      .check(file_prefix());
  command.add_flag("--sort", flags->sort, "Merge in the order of the prefixes' names");
  command.add_flag("--allow-missing-parts", flags->allow_missing_parts,
                   "Merge even if some parts of 'tokenize --part' are missing");
  command.add_flag("--overwrite", flags->overwrite, "Replace files that exist");
  command.add_flag("--dry-run", flags->dry_run, "Show what would be written, and write nothing");
  add_progress_option(command, flags->progress);
  add_json_option(command, flags->json);
  command.footer(kMergeDataExamples);
  command.action([flags] { merge_data(*flags); });
}

}  // namespace ferry::tool
