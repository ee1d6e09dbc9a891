// Byte-pair encoding of pieces split by one pattern: GPT-2's tokenizer and tiktoken's.
#pragma once

#include "text/bpe/byte_pair_encoder.h"
#include "text/split/splitter.h"
#include "text/tokenizer.h"

namespace ferry {

struct BytePairParts {
  BytePairs pairs;  // `whole`, if set, is replaced by the vocabulary below
  std::unique_ptr<const Vocabulary> vocabulary;  // of bytes
  std::unique_ptr<const Splitter> splitter;
  std::optional<int32_t> end_of_document;
  int64_t vocab_size = 0;
  std::string kind;
};

class BytePairTokenizer : public TextTokenizer {
 public:
  explicit BytePairTokenizer(BytePairParts parts);

  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const noexcept override { return vocab_size_; }
  std::optional<int32_t> end_of_document() const override { return end_of_document_; }
  std::string kind() const override { return kind_; }

 private:
  std::unique_ptr<const Vocabulary> vocabulary_;
  BytePairEncoder encoder_;
  std::unique_ptr<const Splitter> splitter_;
  std::optional<int32_t> end_of_document_;
  int64_t vocab_size_;
  std::string kind_;
  mutable StatePool<BytePairEncoder::State> states_;
};

/// The text or, if it is not valid UTF-8, its repaired form in `room`. invalid for 2^31 bytes or
/// more.
std::string_view well_formed(std::string_view text, std::string& room);

}  // namespace ferry
