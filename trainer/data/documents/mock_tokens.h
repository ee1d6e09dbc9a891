// Made-up sequences, for runs that need no data: 100,000 of them, of 1 to 4,095 tokens, which count
// 1, 2, 3, ... and end with the end-of-document token. Those of Megatron-LM's --mock-data.
//
// Source: megatron/core/datasets/gpt_dataset.py (MockGPTLowLevelDataset).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/documents/token_source.h"

namespace ferry {

class MockTokens final : public TokenSource {
 public:
  /// Tokens count modulo `vocabulary_size`, at least 1.
  MockTokens(int64_t vocabulary_size, int32_t end_of_document);
  void read(int64_t sequence, int64_t offset, std::span<int32_t> into) const override;
  std::string name() const override { return "mock data"; }

 private:
  std::vector<int32_t> length_values_;
  int64_t vocabulary_size_;
  int32_t end_of_document_;
};

}  // namespace ferry
