// Token sequences that samples are cut from: from files, or mock data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace ferry {

/// Numbered sequences, each of some length, which may be 0. Safe from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  int64_t sequences() const noexcept { return sequences_; }
  /// Length of a sequence in [0, sequences()) as stored: in a damaged file it may be wrong, even
  /// negative.
  int32_t length(int64_t sequence) const noexcept {
    int32_t value = 0;  // unaligned in the file
    std::memcpy(&value, lengths_ + sequence * static_cast<int64_t>(sizeof value), sizeof value);
    return value;
  }
  /// Tokens [offset, offset + into.size()) of a sequence. corrupt if the sequence is shorter, its
  /// bytes exceed the file, or a token does not fit 32 bits.
  virtual void read(int64_t sequence, int64_t offset, std::span<int32_t> into) const = 0;
  /// An upper bound of the tokens of all sequences.
  virtual int64_t most_tokens() const noexcept { return INT64_MAX; }
  /// For messages.
  virtual std::string name() const = 0;

 protected:
  TokenSource() = default;
  /// `lengths`: this many int32, possibly unaligned, which must outlive this.
  void set_lengths(const std::byte* lengths, int64_t sequences) noexcept {
    lengths_ = lengths;
    sequences_ = sequences;
  }

 private:
  const std::byte* lengths_ = nullptr;
  int64_t sequences_ = 0;
};

// The sequences of Megatron-LM's --mock-data, for runs without data: 100,000 of them, of 1 to 4,095
// tokens, which count 1, 2, 3, ... and end with the end-of-document token.
//
// Source: megatron/core/datasets/gpt_dataset.py (MockGPTLowLevelDataset).

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
