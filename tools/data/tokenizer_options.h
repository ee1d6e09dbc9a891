// Options that say which tokenizer, as Megatron-LM's do.
#pragma once

#include "text/tokenizer.h"
#include "tools/terminal/command.h"

namespace ferry::tool {

/// --tokenizer-type, --tokenizer-model, --vocab-file, --merge-file, --tiktoken-pattern and
/// --no-special-tokens.
void add_tokenizer_options(Command& command, TokenizerChoice& choice, bool required);

}  // namespace ferry::tool
