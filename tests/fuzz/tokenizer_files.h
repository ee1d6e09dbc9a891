// Files of a tokenizer and a text, as one input of a fuzz target.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ferry::test {

/// --tokenizer-type gives the kind of the files.
struct TokenizerFiles {
  std::string type;
  std::string model;  // tokenizer.json, tiktoken's ranks, a SentencePiece model; GPT-2's vocabulary
  std::string merges;   // GPT-2's
  std::string pattern;  // tiktoken's
  std::string text;
};

/// The members in sequence, each after its length in four bytes.
std::string to_input(const TokenizerFiles& files);
/// Nothing where the input is none of these.
std::optional<TokenizerFiles> from_input(std::string_view input);

}  // namespace ferry::test
