// What a run needs to know about its tokenizer, read from the tokenizer's files.
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
  int64_t tokens = 0;  // in the vocabulary, including added ones
  std::optional<int64_t> end_of_document, padding;
};

/// Facts about the tokenizer that --tokenizer-type, --tokenizer-model and --vocab-file name. Empty
/// for NullTokenizer, which has no files, and for unknown kinds. not_found or corrupt, naming the
/// file.
std::optional<TokenizerFacts> tokenizer_facts(const FileSystem& files,
                                              const TrainArguments& arguments);

/// Sets the vocabulary size (unless --vocab-size is given) and the end-of-document and padding
/// tokens from the tokenizer's files, if they are known. With --vocab-size the files may be
/// missing, unless an argument needs the end-of-document token.
void adopt_tokenizer(const FileSystem& files, TrainArguments& arguments);

}  // namespace ferry
