#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ops/output/paths.h"
#include "tools/data/commands.h"
#include "tools/data/tokenize/part_option.h"
#include "tools/data/tokenize/tokenize_report.h"
#include "tools/data/tokenizer_options.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

constexpr const char* kTokenizeExamples = R"(Examples:
  ferry data tokenize --input corpus.jsonl.gz --output-prefix corpus --append-eod \
      --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt
  ferry data tokenize --input 'data/*.jsonl.zst' --output-prefix corpus --append-eod \
      --tokenizer-type HuggingFaceTokenizer --tokenizer-model llama/tokenizer.json --resume
  srun -n 16 ferry data tokenize --part auto --input ... --output-prefix parts/corpus ...
  ferry data merge parts/ -o corpus_text_document

Flags and output are those of Megatron-LM's preprocess_data.py: OUT_KEY_document.bin and .idx.
)";

struct TokenizeFlags {
  std::vector<std::string> inputs, keys = {"text"};
  std::string input_list, input_folder, output, part, max_line = "64MiB";
  TokenizerChoice tokenizer;
  TextFormat format = TextFormat::by_name;
  EncodeOptions encode;
  std::optional<DType> type;
  int workers = 0;
  int64_t partitions = 1, log_interval = 0;
  std::optional<double> journal_seconds;
  bool keep_sequential = false, resume = false, overwrite = false, dry_run = false, json = false;
};

std::vector<std::string> input_paths(const FileSystem& file_system, const TokenizeFlags& flags) {
  if (flags.input_list.empty() && flags.inputs.empty()) {
    fail(ErrorKind::invalid, "no text is given; name it by --input or --input-list");
  }
  std::vector<std::string> paths = flags.inputs;
  if (flags.input_list.empty()) return paths;
  const auto listed = paths_of_list(file_system, flags.input_list, flags.input_folder);
  paths.insert(paths.end(), listed.begin(), listed.end());
  return paths;
}

std::vector<std::string> output_prefixes(const TokenizeFlags& flags, const Part& part) {
  std::vector<std::string> prefixes;
  const char* level = flags.encode.sentences ? "sentence" : "document";
  for (const std::string& key : flags.keys) {
    if (key.find('/') != std::string::npos || key.find('\0') != std::string::npos) {
      fail(ErrorKind::invalid, "the key '{}' cannot be a part of a file's name", key);
    }
    prefixes.push_back(fmt::format("{}_{}_{}", prefix_of_part(flags.output, part), key, level));
  }
  if (std::set(prefixes.begin(), prefixes.end()).size() < prefixes.size()) {
    fail(ErrorKind::invalid, "--json-keys names a key twice");
  }
  return prefixes;
}

Part part_of_flags(const TokenizeFlags& flags) {
  const Environment environment = process_environment();
  if (!flags.part.empty()) return parse_part(flags.part, environment);
  if (started_several(launchers(environment))) {
    fail(ErrorKind::invalid,
         "several processes were started; give --part auto, which has each do its part, and "
         "'ferry data merge' the parts afterwards");
  }
  return {};
}

void check_options(const TokenizeFlags& flags, const TokenizePlan& plan, const Part& part) {
  const auto pipe = std::find_if(plan.inputs.begin(), plan.inputs.end(),
                                 [](const TextInput& input) { return !input.is_file; });
  if (pipe != plan.inputs.end() && (plan.encode.partitions > 1 || flags.resume)) {
    fail(ErrorKind::invalid, "{} is not a regular file, which {} needs",
         pipe->path == "-" ? "standard input" : pipe->path,
         flags.resume ? "--resume" : "--partitions");
  }
  if (plan.encode.partitions > 1 && part.count > 1) {
    fail(ErrorKind::invalid, "--partitions and --part exclude each other; --part divides the work");
  }
  const bool has_texts =
      std::any_of(plan.inputs.begin(), plan.inputs.end(),
                  [](const TextInput& input) { return input.format != TextFormat::json_lines; });
  const bool needs_lists = flags.encode.sentences;
  if (has_texts && (flags.keys.size() > 1 || needs_lists)) {
    fail(ErrorKind::invalid,
         "texts that are not JSON have neither several keys nor lists of sentences; {}",
         needs_lists ? "leave out --split-sentences" : "leave out --json-keys");
  }
  for (const TextInput& input : plan.inputs) {
    for (const std::string& prefix : plan.prefixes) {
      if (!input.is_file) continue;
      for (const char* suffix : {".bin", ".idx"}) {
        if (!is_same_or_inside(input.path, prefix + suffix)) continue;
        fail(ErrorKind::invalid,
             "{} would be replaced by what is made of it; choose another "
             "--output-prefix",
             input.path);
      }
    }
  }
}

// All that decides on what is written, for a run that goes on.
json settings_of(const TokenizeFlags& flags, const TokenizePlan& plan, const Part& part,
                 const FileSystem& file_system) {
  json files = json::array(), tokenizer_files = json::array();
  for (const TextInput& input : plan.inputs) {
    files.push_back(
        {absolute(input.path), input.bytes, input.changed_seconds, static_cast<int>(input.format)});
  }
  const auto file_facts = [&](const std::string& path) -> json {
    const PathStatus status = path.empty() ? PathStatus{} : file_system.status(path);
    return {path, status.bytes, status.changed_seconds};
  };
  for (const std::string& path :
       {flags.tokenizer.model, flags.tokenizer.vocab_file, flags.tokenizer.merge_file}) {
    tokenizer_files.push_back(file_facts(path));
  }
  return {{"--input", files},
          {"--json-keys", flags.keys},
          {"--append-eod", plan.encode.append_eod},
          {"--split-sentences", plan.encode.sentences},
          {"--dtype", torch_name(plan.encode.type)},
          {"--partitions", plan.encode.partitions},
          {"--part", {part.number, part.count}},
          {"--tokenizer-type", flags.tokenizer.type},
          {"the tokenizer's files", tokenizer_files},
          {"--tiktoken-pattern", flags.tokenizer.pattern},
          {"--no-special-tokens", !flags.tokenizer.add_special}};
}

// Texts that are named twice are trained on twice, which is legal and seldom meant.
void warn_of_input_twice(const TokenizePlan& plan) {
  std::set<std::string> seen;
  for (const TextInput& input : plan.inputs) {
    if (!input.is_file || seen.insert(canonical(input.path).string()).second) continue;
    return print_aside("warning: " + printable(input.path) +
                       " is named twice: its texts are written twice\n");
  }
}

void run_tokenize(const TokenizeFlags& flags) {
  const auto file_system = posix_file_system();
  const Part part = part_of_flags(flags);
  TokenizePlan plan;
  plan.inputs = find_inputs(*file_system, input_paths(*file_system, flags), flags.format);
  plan.ranges = ranges_of(plan.inputs, part);
  plan.prefixes = output_prefixes(flags, part);
  plan.encode = flags.encode;
  plan.encode.keys = flags.keys;
  plan.encode.partitions = flags.keep_sequential ? 1 : flags.partitions;
  plan.reader.columns = flags.keys;
  plan.reader.longest_line = parse_size(flags.max_line, "--max-line");
  plan.encode.longest_line = plan.reader.longest_line;
  plan.workers = thread_count(flags.workers);
  plan.overwrite = flags.overwrite;
  plan.journal_seconds = flags.journal_seconds.value_or(plan.journal_seconds);
  check_options(flags, plan, part);
  warn_of_input_twice(plan);
  TokenizedText tokenized;
  tokenized.outputs = plan.prefixes;
  for (const InputRange& range : plan.ranges) {
    tokenized.inputs.push_back(plan.inputs[range.input].path);
  }
  tokenized.part = part;
  tokenized.workers = plan.workers;
  tokenized.input_bytes = input_bytes(plan);
  tokenized.dry_run = flags.dry_run;
  const std::string work = Journal::path_of(prefix_of_part(flags.output, part));
  const bool may_go_on = file_system->status(work).kind != PathKind::missing;
  if (may_go_on && !flags.resume) {
    fail(ErrorKind::invalid,
         "{} holds what an interrupted run wrote; give --resume to go on there, or remove it",
         work);
  }
  if (!may_go_on) {
    for (const std::string& prefix : plan.prefixes) {
      IndexedDatasetWriter::check_target(*file_system, prefix, plan.overwrite);
    }
  }
  TokenizeLog log(flags.log_interval, flags.json, tokenized.input_bytes);
  const auto tokenizer = open_tokenizer(*file_system, flags.tokenizer);
  tokenized.tokenizer = tokenizer->kind();
  tokenized.vocab_size = tokenizer->vocab_size();
  tokenized.training_options = training_options(flags.tokenizer, tokenized.vocab_size);
  if (plan.encode.append_eod && !tokenizer->end_of_document()) {
    fail(ErrorKind::invalid,
         "--append-eod: the tokenizer ({}) names no token that ends documents; leave it out",
         tokenizer->kind());
  }
  plan.encode.type = flags.type.value_or(token_type_for(tokenizer->vocab_size()));
  tokenized.type = plan.encode.type;
  if (!flags.dry_run) {
    const InterruptScope interrupt;
    std::optional<Journal> journal;
    if (flags.resume) {
      journal.emplace(file_system, prefix_of_part(flags.output, part),
                      settings_of(flags, plan, part, *file_system));
    }
    log.begin(tokenized, journal && journal->last() ? journal->last()->counts : EncodeCounts());
    tokenized.result = tokenize(
        file_system, *tokenizer, plan, journal ? &*journal : nullptr,
        {[&](const EncodeCounts& counts, uint64_t bytes) { log.show(counts, bytes); },
         [&] { interrupt.check(); }, [](const std::string& note) { print_aside(note + "\n"); }});
    tokenized.seconds = log.seconds();
  }
  const std::string text = flags.json ? json_text(to_json(tokenized)) : to_text(tokenized);
  if (flags.dry_run) return print(text);
  print_done(text, tokenized.outputs.front() + " is complete");
}

void add_input_options(Command& command, TokenizeFlags& flags) {
  command
      .add_option("--input", flags.inputs,
                  "Texts, plain or compressed (gzip, xz, zstd), or Parquet files; may be patterns; "
                  "- for standard input")
      .type_name("FILE");
  command.add_option("--input-list", flags.input_list, "File that lists input paths, one per line")
      .type_name("FILE");
  command
      .add_option("--input-folder", flags.input_folder,
                  "Folder that relative paths in --input-list start from")
      .type_name("DIR");
  command
      .add_choice(
          "--input-format", flags.format,
          std::map<std::string, TextFormat>{{"jsonl", TextFormat::json_lines},
                                            {"text", TextFormat::text},
                                            {"lines", TextFormat::lines}},
          "jsonl: one object per line; text: one document per file; lines: one document per line")
      .default_text("text for .txt, else jsonl");
  command.add_option("--json-keys", flags.keys, "JSON members to tokenize, each into its own files")
      .type_name("KEY")
      .default_text("text");
  command.add_flag("--split-sentences", flags.encode.sentences,
                   "Write OUT_KEY_sentence: members are lists of sentences, each a sequence");
  command.add_flag("--skip-bad", flags.encode.skip_bad,
                   "Skip and count malformed lines instead of stopping");
  command.add_option("--max-line", flags.max_line, "Refuse lines and documents longer than this")
      .type_name("SIZE")
      .default_text("64MiB");
}

void add_output_options(Command& command, TokenizeFlags& flags) {
  command.add_option("--output-prefix", flags.output, "Write OUT_KEY_document.bin and .idx")
      .required()
      .type_name("OUT")
      .check(not_empty("give the prefix of the files to write"));
  command.add_flag("--append-eod", flags.encode.append_eod,
                   "End each document with the tokenizer's end-of-document token");
  command
      .add_option(
          "--dtype",
          [&flags](const std::string& word) {
            flags.type = word == "uint16" ? DType::u16 : DType::i32;
          },
          "Token type in OUT")
      .type_name("TYPE")
      .default_text("uint16 below 65,500 ids, else int32")
      .one_of({"uint16", "int32"});
  command.add_flag("--resume", flags.resume,
                   "Resume an interrupted run, and make this one resumable");
  command
      .add_option("--resume-interval", flags.journal_seconds,
                  "With --resume: seconds of work that a crash may lose")
      .type_name("SECONDS")
      .default_text("30");
  command.add_flag("--overwrite", flags.overwrite, "Replace files that exist");
  command.add_flag("--dry-run", flags.dry_run, "Show what would be written, and write nothing");
}

void add_work_options(Command& command, TokenizeFlags& flags) {
  command.add_option("--workers", flags.workers, "Threads that encode")
      .type_name("N")
      .default_text("one per core, at most 64")
      .check(whole_number(0, 1024));
  command
      .add_option(
          "--part", flags.part,
          "Do part K (from 0) of N; auto: from the environment of Slurm arrays, srun or mpirun")
      .type_name("K/N");
  command
      .add_option("--partitions", flags.partitions,
                  "Order documents as preprocess_data.py does with this many partitions")
      .type_name("N")
      .default_text("1")
      .check(whole_number(1, 100000));
  command.add_flag("--keep-sequential-samples", flags.keep_sequential,
                   "Keep the order of documents regardless of --partitions");
  command.add_option("--log-interval", flags.log_interval, "Documents between progress lines")
      .type_name("N")
      .default_text("thousands, at most one line per second")
      .check(whole_number(1, INT64_MAX));
}

}  // namespace

void add_data_tokenize(Command& data) {
  auto flags = std::make_shared<TokenizeFlags>();
  Command command = data.add_command(
      "tokenize", "Tokenize texts into token files, as Megatron-LM's preprocess_data.py does");
  add_input_options(command, *flags);
  add_tokenizer_options(command, flags->tokenizer, true);
  add_output_options(command, *flags);
  add_work_options(command, *flags);
  add_json_option(command, flags->json);
  command.footer(kTokenizeExamples);
  command.action([flags] { run_tokenize(*flags); });
}

}  // namespace ferry::tool
