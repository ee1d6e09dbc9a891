// Digests the items of a plan: takes the digest of their bytes as stored in the file, and puts the
// CRC-32s of their payloads in place.
//
// An item's bytes are hashed in their order, as soon as all before them are written: from memory
// where tiles are written in that order, else read back, mostly before they leave the cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/core/item_index.h"
#include "ckpt/core/passing_values.h"
#include "ckpt/engine/items/item_stream.h"
#include "ckpt/engine/items/written_runs.h"
#include "ckpt/engine/transfers/transfer.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Safe from several threads.
class ItemDigester {
 public:
  /// The plan, its files and `values`, which is shown all bytes of items if it is not null, must
  /// outlive the digester. Literals must have been written.
  ItemDigester(const Plan& plan, std::span<WritableFile* const> files,
               const std::atomic<bool>* cancel, PassingValues* values = nullptr);

  /// Shows elements that were just written, before their transfers are named: they need not be read
  /// back when all before them is written.
  void show(uint32_t file, uint64_t offset, std::span<const std::byte> bytes);

  /// Says that these transfers are written, shown or not. Reads back, through `buffer` (at least
  /// one byte), what can be hashed now.
  void wrote(const std::vector<Transfer>& transfers, std::span<std::byte> buffer);

  /// Digests the next item that no transfer writes to. False when there is none.
  bool digest_next_literal(std::span<std::byte> buffer);

  /// In order of the plan's items, once everything is written.
  std::vector<Digest> take_digests() { return std::move(digests_); }

 private:
  // One item on its way.
  struct State {
    WrittenRuns written;
    std::mutex mutex;                    // guards the stream
    std::unique_ptr<ItemStream> stream;  // none before the first byte and after the last
    PassingValues::Seer see;             // what the stream is given
    std::atomic<uint64_t> position{0};   // of the stream, in the file
  };

  uint64_t end_of(uint32_t position) const;
  void note_literals();
  void read_back(uint32_t position, uint64_t end, std::span<std::byte> buffer);
  void advance(uint32_t position, std::span<std::byte> buffer);
  template <typename Byte>
  void pass(uint32_t position, std::span<Byte> bytes);
  void note_passed(uint32_t position);

  const Plan& plan_;
  std::span<WritableFile* const> files_;
  const std::atomic<bool>* cancel_;
  PassingValues* values_;
  ItemIndex index_;
  std::deque<State> states_;        // one an item
  std::vector<uint32_t> literals_;  // items that no transfer writes to
  std::atomic<size_t> next_literal_{0};
  std::vector<Digest> digests_;
};

}  // namespace ferry
