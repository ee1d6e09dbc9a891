// Token files PREFIX.bin and PREFIX.idx, as Megatron-LM and datatrove write them.
//
// PREFIX.bin: tokens, one after another, little-endian. PREFIX.idx, little-endian, not aligned:
//
//   9 bytes      "MMIDIDX" and two zero bytes
//   uint64       version, 1
//   uint8        type of a token: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 float64, 7 float32,
//                8 uint16
//   uint64       S, how many sequences
//   uint64       D, how many document boundaries: documents + 1
//   S x int32    tokens of each sequence
//   S x int64    where each begins in PREFIX.bin, in bytes
//   D x int64    document k has sequences [boundary k, boundary k + 1): from 0 to S, ascending
// S x int8 multimodal files only: the mode of each sequence; ignored
//
// Source: megatron/core/datasets/indexed_dataset.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/io/file_system.h"
#include "trainer/data/documents/file_bytes.h"
#include "trainer/data/documents/token_source.h"

namespace ferry {

/// Bytes before the sequence lengths.
inline constexpr uint64_t kIndexHeaderBytes = 34;

/// The type of a code in PREFIX.idx, and the inverse; empty if there is none.
std::optional<DType> token_type_of_code(uint8_t code) noexcept;
std::optional<uint8_t> code_of_token_type(DType type) noexcept;

/// An open pair. The index is mapped into memory, so it must not be truncated while open (to
/// replace a pair, rename another over it, as IndexedDatasetWriter does). Tokens are read on
/// demand.
class IndexedDataset final : public TokenSource {
 public:
  /// Checks the header and the files' sizes; index entries of a sequence are checked when it is
  /// read. not_found if a file is missing; corrupt for anything that violates the format;
  /// unsupported for another version.
  IndexedDataset(std::shared_ptr<const FileSystem> file_system, std::string prefix);

  const std::string& prefix() const noexcept { return prefix_; }
  DType type() const noexcept { return type_; }
  bool has_modes() const noexcept { return has_modes_; }
  int64_t documents() const noexcept { return boundaries_ - 1; }
  /// Boundary `document` of [0, documents()].
  int64_t document_begin(int64_t document) const noexcept;
  int64_t offset_bytes(int64_t sequence) const noexcept;
  uint64_t token_bytes() const noexcept { return tokens_->size(); }  // of PREFIX.bin
  const ReadableFile& token_file() const noexcept { return *tokens_; }
  /// corrupt, as in read(), if the last sequence exceeds PREFIX.bin, which is then truncated.
  void check_end() const;

  void read(int64_t sequence, int64_t offset, std::span<int32_t> into) const override;
  int64_t most_tokens() const noexcept override {
    return static_cast<int64_t>(token_bytes()) / size_bytes(type_);
  }
  std::string name() const override { return prefix_ + ".bin"; }

 private:
  int64_t number_at(uint64_t offset) const noexcept;
  [[noreturn]] void fail_index(const std::string& problem) const;
  void parse_header();
  /// The byte range of `count` tokens of a sequence in PREFIX.bin. Errors as in read().
  uint64_t place_of(int64_t sequence, int64_t offset, int64_t count) const;

  std::string prefix_;
  FileBytes index_;
  std::shared_ptr<const ReadableFile> tokens_;
  DType type_ = DType::u16;
  bool has_modes_ = false;
  int64_t boundaries_ = 1;
  uint64_t offsets_at_ = 0, boundaries_at_ = 0;  // byte offsets in the index
};

// Documents in the form of token files, before they are written: several threads make them, one
// writes them.

struct StoredDocuments {
  std::vector<std::byte> tokens;
  std::vector<int32_t> lengths;    // of sequences, in tokens
  std::vector<int32_t> sequences;  // of each document

  /// Appends a sequence. Errors as in append_stored(); invalid for 2^31 tokens or more.
  void add_sequence(std::span<const int32_t> ids, DType type);
  /// Appends those of `other`, which has the same type.
  void append(const StoredDocuments& other);
  /// Appends tokens to the last sequence.
  void extend_last(std::span<const int32_t> ids, DType type);
};

/// Appends tokens encoded as `type`. invalid for a token that does not fit; unsupported for a type
/// that cannot hold tokens.
void append_stored(std::span<const int32_t> ids, DType type, std::vector<std::byte>& bytes);

}  // namespace ferry
