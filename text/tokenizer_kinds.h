// The tokenizers that open_tokenizer() chooses from, one function for each kind of file.
#pragma once

#include "text/bpe/byte_pair_tokenizer.h"
#include "text/tokenizer.h"

namespace ferry {

// Megatron-LM's GPT2BPETokenizer: vocab.json and merges.txt.
// Source: Megatron-LM, megatron/training/tokenizer/gpt2_tokenization.py.

std::unique_ptr<const TextTokenizer> open_gpt2_tokenizer(const FileSystem& file_system,
                                                         const std::string& vocab_file,
                                                         const std::string& merge_file);

// tiktoken's files: for each token a line with its bytes in base64 and its rank, which is its id.
// Source: openai/tiktoken, tiktoken/load.py and src/lib.rs.

/// `pattern` is a pattern or the name of a known one. Special tokens, which such files do not
/// contain, have no ids.
std::unique_ptr<const TextTokenizer> open_tiktoken_tokenizer(const FileSystem& file_system,
                                                             const std::string& path,
                                                             const std::string& pattern);

/// The merges of a vocabulary of bytes whose ids are ranks: two neighbours merge if their bytes
/// together are a token. corrupt, with `path`, if a byte has no token.
BytePairs byte_pairs_by_rank(const Vocabulary& vocabulary, const std::string& path);

// Hugging Face's tokenizer.json.
// Source: huggingface/tokenizers 0.23, tokenizers/src/tokenizer/mod.rs.

/// `model` is the file or its folder. `add_special`: add what the post-processor adds. The end of a
/// document is the eos_token of tokenizer_config.json in the same folder.
std::unique_ptr<const TextTokenizer> open_hugging_face_tokenizer(const FileSystem& file_system,
                                                                 const std::string& model,
                                                                 bool add_special);

// SentencePiece's models: Megatron-LM's SentencePieceTokenizer, GPTSentencePieceTokenizer and
// Llama2Tokenizer.
// Source: sentencepiece 0.2.3; Megatron-LM,
// megatron/core/tokenizers/text/libraries/sentencepiece_tokenizer.py.

/// The end of a document is the model's end of sentence (</s>), if that is a control symbol.
std::unique_ptr<const TextTokenizer> open_sentencepiece_tokenizer(const FileSystem& file_system,
                                                                  const std::string& path);

}  // namespace ferry
