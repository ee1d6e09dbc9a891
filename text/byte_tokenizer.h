// A tokenizer without a vocabulary: every byte is a token.
#pragma once

#include "text/tokenizer.h"

namespace ferry {

class ByteTokenizer : public TextTokenizer {
 public:
  static constexpr int32_t kEndOfDocument = 256;  // after the bytes 0 to 255
  static constexpr int64_t kVocabSize = 257;

  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const noexcept override { return kVocabSize; }
  std::optional<int32_t> end_of_document() const override { return kEndOfDocument; }
  std::string kind() const override { return "bytes"; }
};

}  // namespace ferry
