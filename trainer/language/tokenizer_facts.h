// What a run has to know of its tokenizer: read from the tokenizer's files, without the tokenizer.
//
// Source: Megatron-LM megatron/core/tokenizers/utils/build_tokenizer.py and
// text/libraries/{huggingface,megatron_hf,sentencepiece,tiktoken}_tokenizer.py; transformers
// tokenization_utils_fast.py; sentencepiece_model.proto.
#pragma once

#include <cstdint>
#include <optional>

#include "ckpt/io/file_system.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry {

struct TokenizerFacts {
  int64_t tokens = 0;  // of the vocabulary, those that were added to it included
  std::optional<int64_t> end_of_document, padding;
};

/// Of the tokenizer that --tokenizer-type, --tokenizer-model and --vocab-file name. Nothing where
/// its files do not tell: a NullTokenizer, which has none, and kinds that are not known here.
/// not_found or corrupt, naming the file.
std::optional<TokenizerFacts> tokenizer_facts(const FileSystem& files,
                                              const TrainArguments& arguments);

/// Takes the size of the vocabulary (unless --vocab-size says it) and the tokens that end documents
/// and pad them from the tokenizer's files, where they tell. With --vocab-size they may be
/// elsewhere, unless an argument needs the token that ends documents.
void adopt_tokenizer(const FileSystem& files, TrainArguments& arguments);

}  // namespace ferry
