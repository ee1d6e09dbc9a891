// A little staging memory that a large snapshot passes through.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ckpt/memory/stager.h"

namespace ferry {

/// Copies pieces of memory aside as they are asked for, over those that were not used for the
/// longest time. Safe from several threads.
class PieceRing {
 public:
  /// `memory` is the ring's (at least a byte) for as long as it lives; it holds some `pieces`.
  PieceRing(std::shared_ptr<Stager> stager, std::shared_ptr<void> moment,
            std::span<std::byte> memory, int pieces);

  /// Bytes of a region of the caller's memory, as they were at the moment. `number` identifies the
  /// region. Throws what the stager throws.
  void read(uint32_t number, std::span<const std::byte> region, uint64_t offset,
            std::span<std::byte> into);

 private:
  struct Piece {
    std::span<std::byte> bytes;
    uint32_t region = 0;
    uint64_t first = 0;  // of the region's bytes
    bool is_filled = false;
    bool is_filling = false;
    int users = 0;
    uint64_t last_used = 0;
  };

  Piece& take(uint32_t number, std::span<const std::byte> region, uint64_t first);
  Piece* find(uint32_t number, uint64_t first);
  Piece* oldest_unused();
  void fill(Piece& piece, std::span<const std::byte> from);
  void release(Piece& piece);

  const std::shared_ptr<Stager> stager_;
  const std::shared_ptr<void> moment_;
  uint64_t piece_bytes_;
  std::mutex copying_;  // the stager is asked for one thing at a time
  std::mutex mutex_;    // guards what follows
  std::condition_variable changed_;
  std::vector<Piece> pieces_;
  uint64_t uses_ = 0;
};

}  // namespace ferry
