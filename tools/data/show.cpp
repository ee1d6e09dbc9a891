#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/data/commands.h"
#include "tools/data/token_files.h"
#include "tools/data/tokenizer_options.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"
#include "trainer/data/open_datasets.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

constexpr const char* kShowExamples = R"(Examples:
  ferry data show corpus_text_document --tokenizer-type GPT2BPETokenizer \
      --vocab-file vocab.json --merge-file merges.txt
  ferry data show corpus_text_document --from 1000 --count 3 --tokenizer-type bytes
  ferry data show corpus_text_document --samples --seq-length 1024 --seed 1234 ...
)";

constexpr int64_t kMostSequenceLength = int64_t{1} << 24;  // a sample is built whole

struct ShowFlags {
  std::string path, split, cache_path;
  TokenizerChoice tokenizer;
  int64_t from = 0, count = 3, most_tokens = 512, sequence_length = 0, seed = 1234;
  bool samples = false, json = false;
};

struct ShownTokens {
  int64_t number = 0, length = 0;  // of all its tokens
  std::vector<int32_t> tokens;     // the first of them
  std::optional<std::string> text = std::nullopt;
  std::vector<int64_t> outside = {};  // places of ids that the tokenizer does not have
};

std::vector<ShownTokens> documents_of(const ShowFlags& flags) {
  const auto dataset = open_tokens(flags.path);
  std::vector<ShownTokens> shown;
  for (int64_t d = flags.from; d < std::min(flags.from + flags.count, dataset->documents()); ++d) {
    ShownTokens one{.number = d, .length = 0, .tokens = {}};
    one.tokens = first_tokens(*dataset, d, flags.most_tokens);
    for (int64_t i = dataset->document_begin(d); i < dataset->document_begin(d + 1); ++i) {
      if (i >= 0 && i < dataset->sequences()) one.length += dataset->length(i);
    }
    shown.push_back(std::move(one));
  }
  if (shown.empty()) {
    fail(ErrorKind::invalid, "{} has {} documents, and no document {}", dataset->prefix(),
         dataset->documents(), flags.from);
  }
  return shown;
}

// Samples of the train split, in the order in which a run takes them.
std::vector<ShownTokens> samples_of_run(const ShowFlags& flags) {
  if (flags.sequence_length < 1) {
    fail(ErrorKind::invalid, "--samples needs --seq-length, the tokens of a sample");
  }
  DataOptions options;
  options.data_path = {prefix_of(flags.path)};
  options.split = flags.split.empty() ? "1" : flags.split;
  options.sequence_length = flags.sequence_length;
  options.seed = flags.seed;
  options.samples.train = flags.from + flags.count;
  options.cache_path = flags.cache_path;
  const auto dataset = open_datasets(posix_file_system(), options).train;
  std::vector<ShownTokens> shown;
  for (int64_t i = flags.from; dataset && i < std::min(flags.from + flags.count, dataset->size());
       ++i) {
    Sample sample;
    dataset->read(i, sample);
    ShownTokens one{.number = i, .length = std::ssize(sample.tokens), .tokens = sample.tokens};
    one.tokens.resize(static_cast<size_t>(std::min(one.length, flags.most_tokens)));
    shown.push_back(std::move(one));
  }
  if (shown.empty()) {
    fail(ErrorKind::invalid, "{}: --split {} leaves no sample for training", flags.path,
         options.split);
  }
  return shown;
}

std::string to_text(const std::vector<ShownTokens>& shown, const char* what) {
  std::string text;
  for (const ShownTokens& one : shown) {
    text += fmt::format("{} {}: {} tokens\n", what, grouped(one.number), grouped(one.length));
    if (one.text) {
      text += printable(*one.text, true);
    } else {
      text += fmt::format("{}", fmt::join(one.tokens, " "));
    }
    text += std::ssize(one.tokens) < one.length ? " ...\n\n" : "\n\n";
  }
  return text;
}

json to_json(const std::vector<ShownTokens>& shown, const char* what) {
  json list = json::array();
  for (const ShownTokens& one : shown) {
    list.push_back({{"number", one.number},
                    {"length", one.length},
                    {"tokens", one.tokens},
                    {"text", one.text ? json(*one.text) : json(nullptr)},
                    {"outside_vocabulary", one.outside}});
  }
  return {{std::string(what) + "s", list}};
}

// decode() leaves out ids that the tokenizer does not have: they are shown as numbers.
void decode(const TextTokenizer& tokenizer, ShownTokens& one) {
  const std::span<const int32_t> tokens = one.tokens;
  std::string text;
  size_t begin = 0;  // of ids that it has
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < tokenizer.vocab_size()) continue;
    text += tokenizer.decode(tokens.subspan(begin, i - begin)) + fmt::format("<id {}>", tokens[i]);
    one.outside.push_back(static_cast<int64_t>(i));
    begin = i + 1;
  }
  one.text = text + tokenizer.decode(tokens.subspan(begin));
}

void warn_of_outside(const std::vector<ShownTokens>& shown, const char* what, int64_t vocabulary) {
  size_t count = 0;
  const ShownTokens* first = nullptr;
  for (const ShownTokens& one : shown) {
    if (!one.outside.empty() && first == nullptr) first = &one;
    count += one.outside.size();
  }
  if (first == nullptr) return;
  const int64_t place = first->outside.front();
  print_aside(fmt::format(
      "warning: {} of the ids shown {} outside the tokenizer's vocabulary of 0 to {}, the first "
      "in {} {}, token {}: {}. Another tokenizer wrote these files; see: ferry data check "
      "--vocab-size {}\n",
      count, count == 1 ? "is" : "are", vocabulary - 1, what, first->number, place,
      first->tokens[static_cast<size_t>(place)], vocabulary));
}

void show_data(const ShowFlags& flags) {
  int64_t vocabulary = 0;
  std::vector<ShownTokens> shown = flags.samples ? samples_of_run(flags) : documents_of(flags);
  if (!flags.tokenizer.type.empty()) {
    const auto tokenizer = open_tokenizer(*posix_file_system(), flags.tokenizer);
    for (ShownTokens& one : shown) decode(*tokenizer, one);
    vocabulary = tokenizer->vocab_size();
  }
  const char* what = flags.samples ? "sample" : "document";
  print(flags.json ? json_text(to_json(shown, what)) : to_text(shown, what));
  warn_of_outside(shown, what, vocabulary);
}

}  // namespace

void add_show_data(Command& data) {
  auto flags = std::make_shared<ShowFlags>();
  Command command = data.add_command("show", "Print documents or samples of token files, decoded");
  command.add_option("PREFIX", flags->path, "Prefix of PREFIX.bin and PREFIX.idx")
      .required()
      .type_name("");
  command.add_option("--from", flags->from, "First document or sample to print, from 0")
      .type_name("N")
      .default_text("0")
      .check(whole_number(0, INT32_MAX));
  command.add_option("--count", flags->count, "How many")
      .type_name("N")
      .default_text("3")
      .check(whole_number(1, 1000000));
  command.add_option("--max-tokens", flags->most_tokens, "Tokens to print of each, from its start")
      .type_name("N")
      .default_text("512")
      .check(whole_number(1, INT32_MAX));
  add_tokenizer_options(command, flags->tokenizer, false);
  command.add_flag("--samples", flags->samples,
                   "Print training samples, as a run with these options reads them");
  command.add_option("--seq-length", flags->sequence_length, "With --samples: tokens per sample")
      .type_name("N")
      .check(whole_number(1, kMostSequenceLength));
  command.add_option("--seed", flags->seed, "With --samples: the run's seed")
      .type_name("N")
      .default_text("1234")
      .check(whole_number(0, UINT32_MAX));
  command.add_option("--split", flags->split, "With --samples: the run's split")
      .type_name("SHARES")
      .default_text("all for training");
  command
      .add_option("--data-cache-path", flags->cache_path,
                  "With --samples: the run's folder of sample orders")
      .type_name("FOLDER")
      .default_text("next to PREFIX");
  add_json_option(command, flags->json);
  command.footer(kShowExamples);
  command.action([flags] { show_data(*flags); });
}

}  // namespace ferry::tool
