#include "estimate/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/megatron/state/vocabulary.h"
#include "convert/arguments/arguments.h"
#include "convert/config_json.h"
#include "convert/import.h"
#include "convert/language_part.h"
#include "trainer/arguments/argument_row.h"
#include "trainer/arguments/parse.h"

namespace ferry {
namespace {

constexpr uint64_t kMostConfigBytes = 16 << 20;
constexpr uint64_t kTextHead = 4096;    // bytes, of a file that may be text
constexpr int64_t kUsualTokens = 4096;  // of a sequence, where nobody says it

// Places and moments of the run that saved a checkpoint, which are nothing of its size.
constexpr std::string_view kOfThatRun[] = {"load",
                                           "save",
                                           "rank",
                                           "tensorboard_dir",
                                           "data_path",
                                           "train_data_path",
                                           "valid_data_path",
                                           "test_data_path",
                                           "data_args_path",
                                           "per_split_data_args_path",
                                           "vocab_file",
                                           "merge_file",
                                           "tokenizer_type",
                                           "tokenizer_model",
                                           "data_cache_path",
                                           "pretrained_checkpoint",
                                           "metrics_json",
                                           "ckpt_step",
                                           "trigger_path",
                                           "use_checkpoint_args",
                                           "dry_run",
                                           "non_persistent_global_ckpt_dir",
                                           "eval_global_batch_size",
                                           "eval_micro_batch_size"};

// All that a namespace of Megatron-LM says of a model and its run.
void take_namespace(EstimateSource& source, const Value& args) {
  for (const ArgumentRow& row : argument_rows()) {
    const Value value = args.get(row.name());
    if (!is_of_size(row) || value.is_none()) continue;
    if (row.name() == "attention_backend") continue;  // each run says it anew, as in training
    const bool is_unknown = row.name() == "padded_vocab_size" && value.integer() == 0;
    if (is_unknown) continue;
    try {
      set_value(source.arguments, row, read_argument(row.kind, row.name(), value));
    } catch (const Error& error) {
      source.notes.push_back(fmt::format("{} is left out: {}", row.name(), error.what()));
    }
  }
  source.arguments.is_global_batch_size_explicit = false;
  source.vocabulary = source.arguments.vocab_size.value_or(0);
  if (source.vocabulary > 0) source.arguments.padded_vocab_size.reset();
  if (source.vocabulary == 0) source.vocabulary = vocabulary_of_arguments(args);
}

bool says(std::span<const std::string> words, std::initializer_list<std::string_view> flags) {
  return std::ranges::any_of(words, [&](const std::string& word) {
    return std::ranges::find(flags, std::string_view(word).substr(0, word.find('='))) !=
           flags.end();
  });
}

// A model alone says nothing of the run that trains it.
void assume_run(EstimateSource& source, std::span<const std::string> words) {
  TrainArguments& a = source.arguments;
  const auto assume = [&](std::initializer_list<std::string_view> flags, const auto& set,
                          const std::string& what) {
    if (says(words, flags)) return;
    set();
    source.notes.push_back(what);
  };
  a.params_dtype.clear();
  a.bf16 = a.fp16 = false;
  assume(
      {"--bf16", "--fp16", "--fp32"}, [&] { a.bf16 = true; }, "--bf16 is taken");
  assume(
      {"--use-distributed-optimizer"}, [&] { a.use_distributed_optimizer = true; },
      "--use-distributed-optimizer is taken");
  const int64_t tokens = std::min(a.max_position_embeddings.value_or(kUsualTokens), kUsualTokens);
  assume(
      {"--seq-length"}, [&] { a.seq_length = tokens; },
      fmt::format("--seq-length {} is taken", tokens));
  a.micro_batch_size.reset();
  a.global_batch_size.reset();
}

void take_model(EstimateSource& source, const Value& args, const std::vector<std::string>& flags,
                const std::string& path, std::span<const std::string> words,
                const FileSystem& files) {
  std::vector<std::string> all;
  for (const std::string& flag : flags) {
    std::vector<std::string> words_of_flag = split_words(flag, path);
    const ArgumentRow* row = find_flag(words_of_flag.front());
    if (row == nullptr || !row->is_bound()) continue;  // source.model has it
    std::ranges::move(words_of_flag, std::back_inserter(all));
  }
  source.arguments = parse_arguments(all, files);
  take_namespace(source, args);
  source.model = read_arguments(args, path).architecture;
  assume_run(source, words);
}

void read_model_config(EstimateSource& source, const nlohmann::json& config,
                       const std::string& path, std::span<const std::string> words,
                       const FileSystem& files) {
  const auto part = language_part(config, std::nullopt);
  if (part) source.notes.push_back("of a model of several parts, the language model is estimated");
  ReadConfig read = read_config(part ? *part : config, std::nullopt, path);
  Draft draft;
  const Value args = draft.instance("argparse.Namespace");
  const WrittenArguments written = write_arguments(read.architecture, draft, args);
  if (!written.problems.empty()) {
    fail(ErrorKind::unsupported, "{}: cannot become a Megatron model: {}", path,
         written.problems.front());
  }
  const LoadedValue all = std::move(draft).finish(args);
  take_model(source, all.value, written.flags, path, words, files);
  source.arguments.vocab_size = read.architecture.vocab;
  source.vocabulary = read.architecture.vocab;
  source.arguments.padded_vocab_size.reset();
  source.what = "a config.json of family " + std::string(read.family->name);
  source.notes.insert(source.notes.end(), read.warnings.begin(), read.warnings.end());
}

nlohmann::json read_json(const FileSystem& files, const std::string& path) {
  return parse_python_json(read_file(files, path, kMostConfigBytes), path);
}

// Files of arguments are, and no file of a checkpoint is.
bool is_text(const FileSystem& files, const std::string& path) {
  const auto file = files.open(path);
  std::string begin(std::min<uint64_t>(file->size(), kTextHead), '\0');
  file->read(0, std::as_writable_bytes(std::span(begin)));
  return std::ranges::none_of(
      begin, [](char c) { return c >= 0 && c < ' ' && c != '\n' && c != '\t' && c != '\r'; });
}

// A converted model does not say how it is trained, and Megatron-LM trains mixtures on several
// tensor ranks in no other way.
void assume_sequence_parallel(EstimateSource& source, const Value& args) {
  TrainArguments& a = source.arguments;
  if (args.has("sequence_parallel") || !a.num_experts || a.tensor_model_parallel_size == 1) return;
  a.sequence_parallel = true;
  source.notes.push_back("--sequence-parallel is taken");
}

void read_checkpoint(EstimateSource& source, const std::shared_ptr<const FileSystem>& files,
                     const std::string& path, std::span<const std::string> words) {
  const Checkpoint checkpoint = open_checkpoint(files, path, {});
  source.what = fmt::format("a {} checkpoint", name(checkpoint.format));
  if (checkpoint.format == Format::hugging_face) {
    const Import model = import_model(checkpoint, {});
    take_model(source, model.state.args.value, model.flags, path, words, *files);
    source.what += " of family " + model.family;
    source.notes.insert(source.notes.end(), model.state.warnings.begin(),
                        model.state.warnings.end());
    return;
  }
  if (checkpoint.args.value.is_none()) {
    fail(ErrorKind::unsupported,
         "{}: has no arguments of a run, of which an estimate is made; give a config.json or a "
         "file of arguments",
         path);
  }
  source.arguments = default_arguments();
  take_namespace(source, checkpoint.args.value);
  assume_sequence_parallel(source, checkpoint.args.value);
  source.model = read_arguments(checkpoint.args.value, path).architecture;
}

void take_vocabulary(EstimateSource& source) {
  if (source.vocabulary == 0) source.vocabulary = source.arguments.vocab_size.value_or(0);
}

}  // namespace

void set_tensor_ranks(TrainArguments& arguments, int64_t ranks) {
  arguments.tensor_model_parallel_size = ranks;
  arguments.expert_tensor_parallel_size.reset();
  arguments.tensor_parallel_num_weight_shards.reset();
  arguments.expert_tensor_parallel_num_weight_shards.reset();
  if (ranks == 1) arguments.sequence_parallel = false;
}

bool is_of_size(const ArgumentRow& row) {
  const bool counts = row.status == ArgumentStatus::used || row.status == ArgumentStatus::fork ||
                      row.status == ArgumentStatus::derived;
  return counts && row.is_bound() &&
         std::ranges::find(kOfThatRun, row.name()) == std::end(kOfThatRun);
}

void take_words(EstimateSource& source, std::span<const std::string> words,
                const FileSystem& files) {
  if (words.empty()) return take_vocabulary(source);
  const TrainArguments said = parse_arguments(words, files);
  if (says(words, {"--tensor-model-parallel-size"})) {
    set_tensor_ranks(source.arguments, said.tensor_model_parallel_size);
  }
  for (const std::string& word : words) {
    const ArgumentRow* row = find_flag(std::string_view(word).substr(0, word.find('=')));
    if (row != nullptr && row->is_bound()) {
      set_value(source.arguments, *row, value_of(said, *row));
    }
  }
  for (const ArgumentRow& row : argument_rows()) {  // of files that words name
    if (row.is_bound() && !is_default(said, row)) {
      set_value(source.arguments, row, value_of(said, row));
    }
  }
  if (said.vocab_size) source.vocabulary = *said.vocab_size;
  take_vocabulary(source);
}

EstimateSource read_estimate_source(const std::shared_ptr<const FileSystem>& files,
                                    const std::string& model, std::span<const std::string> words) {
  EstimateSource source;
  source.arguments = default_arguments();
  const auto is_file = [&](const std::string& path) {
    return files->status(path).kind == PathKind::file;
  };
  const std::string config = join(model, "config.json");
  if (model.empty()) {
    source.what = "arguments";
  } else if (is_file(model) && model.ends_with(".json")) {
    read_model_config(source, read_json(*files, model), model, words, *files);
  } else if (is_file(model) && (model.ends_with(".yaml") || model.ends_with(".yml"))) {
    source.arguments = parse_arguments(std::vector<std::string>{"--yaml-cfg", model}, *files);
    source.what = "arguments of a YAML file";
  } else if (is_file(model) && is_text(*files, model)) {
    source.arguments = parse_arguments(std::vector<std::string>{"@" + model}, *files);
    source.what = "a file of arguments";
  } else if (is_file(config) && !format_of_folder(*files, model)) {
    read_model_config(source, read_json(*files, config), config, words, *files);
  } else {
    read_checkpoint(source, files, model, words);
  }
  take_words(source, words, *files);
  return source;
}

}  // namespace ferry
