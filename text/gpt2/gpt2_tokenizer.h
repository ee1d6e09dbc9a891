// Megatron-LM's GPT2BPETokenizer: vocab.json and merges.txt.
// Source: Megatron-LM, megatron/training/tokenizer/gpt2_tokenization.py.
#pragma once

#include "text/tokenizer.h"

namespace ferry {

std::unique_ptr<const TextTokenizer> open_gpt2_tokenizer(const FileSystem& file_system,
                                                         const std::string& vocab_file,
                                                         const std::string& merge_file);

}  // namespace ferry
