#include "convert/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/megatron/state/vocabulary.h"

namespace ferry {
namespace {

constexpr int64_t kMaxVocabulary = int64_t{1} << 31;

// Rows beyond the vocabulary are padding; those inside are what training taught.
void check_cut(const Value& args, const Tokenizer& tokenizer, int64_t padded_rows,
               const ExportOptions& options, std::vector<std::string>& warnings) {
  const int64_t from_args = vocabulary_of_arguments(args);
  const int64_t from_tokenizer = std::min(tokenizer.vocab.value_or(0), padded_rows);
  const bool by_args = from_args <= padded_rows && from_args >= from_tokenizer;
  const int64_t known = by_args ? from_args : from_tokenizer;
  const int64_t size = *options.vocab_size;
  if (size >= known) return;
  const std::string cut =
      fmt::format("tokens {} to {}, which {}", size, known - 1,
                  by_args ? "the run's arguments count (vocab_size)" : "the tokenizer has");
  if (!options.cut_tokens) {
    fail(ErrorKind::invalid, "{} would cut off {}; {} does so",
         option("vocab_size", fmt::to_string(size)), cut, option("cut_tokens"));
  }
  warnings.push_back(
      fmt::format("the embedding ends before {}, as {} asks", cut, option("cut_tokens")));
}

}  // namespace

int64_t true_vocabulary(const Value& args, const Tokenizer& tokenizer, int64_t padded_rows,
                        const ExportOptions& options, std::vector<std::string>& warnings) {
  if (options.keep_padding && options.vocab_size) {
    fail(ErrorKind::invalid, "a vocabulary size and keeping the padding exclude each other");
  }
  if (options.keep_padding) return padded_rows;
  if (options.vocab_size) {
    if (*options.vocab_size < 1 || *options.vocab_size > padded_rows) {
      fail(ErrorKind::invalid, "vocabulary size {} is not between 1 and the embedding's {} rows",
           *options.vocab_size, padded_rows);
    }
    check_cut(args, tokenizer, padded_rows, options, warnings);
    return *options.vocab_size;
  }
  const int64_t from_args = vocabulary_of_arguments(args);
  const bool own_size = args.get("tokenizer_type").string() == "HuggingFaceTokenizer";
  const int64_t from_tokenizer = tokenizer.vocab.value_or(0);
  int64_t size = from_args;
  // A run with this tokenizer ignores the argument. Where there is room for what it says,
  // a conversion said it: models have more rows than their tokenizers have tokens.
  const bool stale = own_size && (from_args < from_tokenizer || from_args > padded_rows);
  if (from_tokenizer > 0 && (stale || from_args == 0)) size = from_tokenizer;
  if (size == 0 || size > padded_rows) {
    warnings.push_back(
        size == 0 ? fmt::format("the true size of the vocabulary is unknown (neither arguments nor "
                                "tokenizer files say): all {} rows are kept, padding included; "
                                "{} cuts them",
                                padded_rows, option("vocab_size", "N"))
                  : fmt::format(
                        "the vocabulary should have {} tokens, but the embedding has {} rows: all "
                        "are kept",
                        size, padded_rows));
    return padded_rows;
  }
  if (from_tokenizer > size) {
    warnings.push_back(fmt::format(
        "the tokenizer has {} tokens, but the model's vocabulary is {}: the last ones have no "
        "embedding",
        from_tokenizer, size));
  }
  const int64_t divisor = args.get("make_vocab_size_divisible_by").integer().value_or(0);
  const int64_t ranks = args.get("tensor_model_parallel_size").integer().value_or(0);
  const bool plausible =
      divisor > 0 && ranks > 0 && divisor < kMaxVocabulary && ranks < kMaxVocabulary;
  if (const int64_t multiple = plausible ? divisor * ranks : 0;
      plausible && padded_rows - size >= multiple) {
    warnings.push_back(fmt::format(
        "{} of the embedding's {} rows are left out as padding, more than padding to a multiple of "
        "{} needs; check with {} or {}",
        padded_rows - size, padded_rows, multiple, option("vocab_size"), option("keep_padding")));
  }
  return size;
}

}  // namespace ferry
