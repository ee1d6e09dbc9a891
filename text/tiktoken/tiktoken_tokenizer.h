// tiktoken's files: a line for each token, its bytes in base64 and its rank, which is its id.
// Source: openai/tiktoken, tiktoken/load.py and src/lib.rs.
#pragma once

#include "text/bpe/byte_pair_tokenizer.h"
#include "text/tokenizer.h"

namespace ferry {

/// `pattern` is the name of a known one, or one. Special tokens, which such files do not name, have
/// no ids.
std::unique_ptr<const TextTokenizer> open_tiktoken_tokenizer(const FileSystem& file_system,
                                                             const std::string& path,
                                                             const std::string& pattern);

/// What merges to the tokens of a vocabulary of bytes whose ids are ranks: two neighbours whose
/// bytes together are a token. corrupt, with `path`, where a byte has no token.
BytePairs byte_pairs_by_rank(const Vocabulary& vocabulary, const std::string& path);

}  // namespace ferry
