// Options that say which tokenizer, as Megatron-LM's do.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"
#include "tools/terminal/command.h"

namespace ferry::tool {

/// --tokenizer-type, --tokenizer-model, --vocab-file, --merge-file, --tiktoken-pattern and
/// --no-special-tokens.
void add_tokenizer_options(Command& command, TokenizerChoice& choice, bool required);

/// The same tokenizer as words of `ferry train`, for people to paste: "--tokenizer-type ..."
std::string training_options(const TokenizerChoice& choice, int64_t vocab_size);

}  // namespace ferry::tool
