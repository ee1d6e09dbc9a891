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

// tiktoken's files: a line for each token, its bytes in base64 and its rank, which is its id.
// Source: openai/tiktoken, tiktoken/load.py and src/lib.rs.

/// `pattern` is the name of a known one, or one. Special tokens, which such files do not name, have
/// no ids.
std::unique_ptr<const TextTokenizer> open_tiktoken_tokenizer(const FileSystem& file_system,
                                                             const std::string& path,
                                                             const std::string& pattern);

/// What merges to the tokens of a vocabulary of bytes whose ids are ranks: two neighbours whose
/// bytes together are a token. corrupt, with `path`, where a byte has no token.
BytePairs byte_pairs_by_rank(const Vocabulary& vocabulary, const std::string& path);

// Hugging Face's tokenizer.json.
// Source: huggingface/tokenizers 0.23, tokenizers/src/tokenizer/mod.rs.

/// `model` is the file or the folder that it lies in. `add_special`: what the post-processor puts
/// around a text is put there. The end of a document is the eos_token of tokenizer_config.json
/// beside it.
std::unique_ptr<const TextTokenizer> open_hugging_face_tokenizer(const FileSystem& file_system,
                                                                 const std::string& model,
                                                                 bool add_special);

// SentencePiece's models: Megatron-LM's SentencePieceTokenizer, GPTSentencePieceTokenizer and
// Llama2Tokenizer.
// Source: sentencepiece 0.2.3; Megatron-LM,
// megatron/core/tokenizers/text/libraries/sentencepiece_tokenizer.py.

/// What ends a document is the model's end of a sentence (</s>), where that is a control symbol.
std::unique_ptr<const TextTokenizer> open_sentencepiece_tokenizer(const FileSystem& file_system,
                                                                  const std::string& path);

}  // namespace ferry
