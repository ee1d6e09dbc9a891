// SentencePiece's models: Megatron-LM's SentencePieceTokenizer, GPTSentencePieceTokenizer and
// Llama2Tokenizer.
// Source: sentencepiece 0.2.3; Megatron-LM,
// megatron/core/tokenizers/text/libraries/sentencepiece_tokenizer.py.
#pragma once

#include "text/tokenizer.h"

namespace ferry {

/// What ends a document is the model's end of a sentence (</s>), where that is a control symbol.
std::unique_ptr<const TextTokenizer> open_sentencepiece_tokenizer(const FileSystem& file_system,
                                                                  const std::string& path);

}  // namespace ferry
