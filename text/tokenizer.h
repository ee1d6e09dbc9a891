// Tokenizers: text to token ids and back, exactly as the programs that wrote their files.
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

  /// Appends the ids of `text`, a document in UTF-8. Bytes that are not UTF-8 are first replaced by
  /// U+FFFD, as by Python's errors="replace", except if every byte is a token. Thread-safe. invalid
  /// for 2^31 bytes or more.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;

  /// The text of ids, possibly not UTF-8. Unused ids are ignored.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  virtual int64_t vocab_size() const noexcept = 0;  // all ids are smaller

  /// The token after each document, if requested (Megatron-LM's eod).
  virtual std::optional<int32_t> end_of_document() const = 0;

  /// A description for people: "byte-level BPE of 50257 tokens".
  virtual std::string kind() const = 0;
};

/// Selects a tokenizer, with the meaning of Megatron-LM's options.
struct TokenizerChoice {
  /// --tokenizer-type: GPT2BPETokenizer, HuggingFaceTokenizer, TikTokenizer, one of
  /// is_sentencepiece(); or bytes.
  std::string type = {};
  /// --tokenizer-model: tokenizer.json or its folder, a SentencePiece .model, or a .tiktoken file.
  std::string model = {};
  std::string vocab_file = {}, merge_file = {};  // for GPT2BPETokenizer: vocab.json, merges.txt
  /// For tiktoken files, which do not contain the pattern: r50k (gpt2), p50k, cl100k, o200k,
  /// llama3, or a regular expression.
  std::string pattern = {};
  /// Whether to add the special tokens that the tokenizer's file specifies before and after a text
  /// (<s>).
  bool add_special = true;
};

/// Whether this --tokenizer-type of Megatron-LM takes a SentencePiece model. All these names mean
/// the same.
bool is_sentencepiece(std::string_view tokenizer_type);

/// Reads a tokenizer's files. not_found, corrupt and unsupported name the file and the problem;
/// invalid if the choice lacks an option.
std::unique_ptr<const TextTokenizer> open_tokenizer(const FileSystem& file_system,
                                                    const TokenizerChoice& choice);

}  // namespace ferry
