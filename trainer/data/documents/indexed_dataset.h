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
//   S x int8     multimodal files only: the mode of each sequence; passed over
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

/// Bytes before the lengths.
inline constexpr uint64_t kIndexHeaderBytes = 34;

/// The type that a code of PREFIX.idx stands for, and the other way round; nothing for no code.
std::optional<DType> token_type_of_code(uint8_t code) noexcept;
std::optional<uint8_t> code_of_token_type(DType type) noexcept;

/// An open pair. The index is mapped into memory: it must not be cut short while it is open (to
/// replace a pair, move another one into its place, as IndexedDatasetWriter does). Tokens are read
/// when they are asked for.
class IndexedDataset final : public TokenSource {
 public:
  /// Looks at the header and at the files' sizes; what the index says of a sequence is checked when
  /// that is read. not_found when one of the two is missing; corrupt for anything that contradicts
  /// the format; unsupported for another version.
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
  /// corrupt, as read() of it, where the last sequence lies outside PREFIX.bin, of which a part is
  /// missing then.
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
  /// Where `count` tokens of a sequence lie in PREFIX.bin. Errors as of read().
  uint64_t place_of(int64_t sequence, int64_t offset, int64_t count) const;

  std::string prefix_;
  FileBytes index_;
  std::shared_ptr<const ReadableFile> tokens_;
  DType type_ = DType::u16;
  bool has_modes_ = false;
  int64_t boundaries_ = 1;
  uint64_t offsets_at_ = 0, boundaries_at_ = 0;  // in the index
};

// Documents as token files hold them, before they are written: threads make them, one writes them.

struct StoredDocuments {
  std::vector<std::byte> tokens;
  std::vector<int32_t> lengths;    // of sequences, in tokens
  std::vector<int32_t> sequences;  // of each document

  /// A sequence more. Errors as those of append_stored(); invalid for 2^31 tokens or more.
  void add_sequence(std::span<const int32_t> ids, DType type);
  /// Those of `other`, of the same type, after these.
  void append(const StoredDocuments& other);
  /// More tokens of the last sequence.
  void extend_last(std::span<const int32_t> ids, DType type);
};

/// Appends tokens in the form of a type. invalid for one that it cannot hold; unsupported for a
/// type that no tokens are of.
void append_stored(std::span<const int32_t> ids, DType type, std::vector<std::byte>& bytes);

}  // namespace ferry
