// Text to the ids of its tokens and back, as the programs that made a tokenizer's files do it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

class TextTokenizer {
 public:
  virtual ~TextTokenizer() = default;

  /// Appends the ids of `text`, a document in UTF-8. Bytes that are no UTF-8 become U+FFFD first,
  /// as Python's errors="replace" makes them, except where every byte is a token. Safe from several
  /// threads. invalid for a text of 2^31 bytes or more.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;

  /// The text of ids; what is no UTF-8 in it stays as it is. Ids that no token has give nothing.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  virtual int64_t vocab_size() const noexcept = 0;  // every id is below it

  /// What stands behind each document when asked for (Megatron-LM's eod).
  virtual std::optional<int32_t> end_of_document() const = 0;

  /// What it is, for people: "byte-level BPE of 50257 tokens".
  virtual std::string kind() const = 0;
};

/// Which tokenizer, as Megatron-LM's options say it.
struct TokenizerChoice {
  /// --tokenizer-type: GPT2BPETokenizer, HuggingFaceTokenizer, TikTokenizer, one of
  /// is_sentencepiece(); or bytes.
  std::string type = {};
  /// --tokenizer-model: tokenizer.json or the folder that it lies in, a SentencePiece .model, or a
  /// .tiktoken file.
  std::string model = {};
  std::string vocab_file = {}, merge_file = {};  // of GPT2BPETokenizer: vocab.json, merges.txt
  /// Of tiktoken files, which do not say how they divide text: r50k (gpt2), p50k, cl100k, o200k,
  /// llama3, or a regular expression.
  std::string pattern = {};
  /// Whether the tokens that the tokenizer's file puts around a text are put there (<s>).
  bool add_special = true;
};

/// Whether Megatron-LM's --tokenizer-type takes a SentencePiece model. Its names for them mean the
/// same.
bool is_sentencepiece(std::string_view tokenizer_type);

/// Reads a tokenizer's files. not_found, corrupt and unsupported name the file and what is wrong
/// with it; invalid where the choice lacks an option.
std::unique_ptr<const TextTokenizer> open_tokenizer(const FileSystem& file_system,
                                                    const TokenizerChoice& choice);

}  // namespace ferry
