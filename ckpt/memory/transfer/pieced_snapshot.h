// A snapshot that is larger than the staging memory for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ckpt/engine/borrowed_sources.h"
#include "ckpt/memory/region.h"

namespace ferry {

// A little staging memory that a large snapshot passes through.

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

/// Regions of which as much is copied aside at once as there is room for; the rest passes through a
/// ring of pieces while it is written, before what was copied. The caller's memory stays as it is
/// until then.
class PiecedSnapshot final : public BorrowedSources {
 public:
  /// Copies what has room, and lets those regions that have it whole point there. `memory` must
  /// outlive it. `threads`: as many read at a time. `copied` is called when nothing is read from
  /// the caller's memory any more.
  PiecedSnapshot(const std::shared_ptr<Stager>& stager, const std::shared_ptr<void>& moment,
                 std::span<std::byte> memory, std::vector<ConstRegion>& regions, int threads,
                 std::function<void()> copied);

  std::shared_ptr<const ReadableFile> file(uint32_t region) const override;
  void release() const noexcept override { copied_(); }

 private:
  PieceRing ring_;
  std::vector<std::shared_ptr<const ReadableFile>> files_;  // by region; null: copied whole
  std::function<void()> copied_;
};

}  // namespace ferry
