// Seals the items of a plan: once all bytes of an item are written, its CRC-32 is put in place and
// its digest taken, of the bytes as they lie in the file.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/core/item_index.h"
#include "ckpt/engine/transfer.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Safe from several threads.
class Sealer {
 public:
  /// The plan and its files must outlive the sealer. Literals must have been written.
  Sealer(const Plan& plan, std::span<WritableFile* const> files, const std::atomic<bool>* cancel);

  /// Says that these transfers are written. Seals the items that are complete with them, through
  /// `buffer` (at least one byte).
  void wrote(const std::vector<Transfer>& transfers, std::span<std::byte> buffer);

  /// Seals the next item that no transfer writes to. False when there is none.
  bool seal_next_literal(std::span<std::byte> buffer);

  /// In order of the plan's items, once everything is written.
  std::vector<Digest> take_digests() { return std::move(digests_); }

 private:
  void seal(uint32_t position, std::span<std::byte> buffer);

  const Plan& plan_;
  std::span<WritableFile* const> files_;
  const std::atomic<bool>* cancel_;
  ItemIndex index_;
  std::vector<std::atomic<uint64_t>> bytes_left_;  // that transfers still have to write to an item
  std::vector<uint32_t> literals_;                 // items that no transfer writes to
  std::atomic<size_t> next_literal_{0};
  std::vector<Digest> digests_;
};

}  // namespace ferry
