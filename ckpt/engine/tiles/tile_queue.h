// Hands out the tiles of a plan to threads.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "ckpt/core/plan.h"
#include "ckpt/engine/borrowed_sources.h"
#include "ckpt/engine/transfers/transfer.h"

namespace ferry {

/// Each thread gets the tiles of one slab in their order, and the slabs of one item, so that what
/// it writes goes on where it wrote last. Threads are spread evenly over the files, since most file
/// systems let one thread at a time write to a file. Threads without work of their own help the
/// others. Safe from several threads.
class TileQueue {
 public:
  /// The plan and the compiler must outlive the queue. A tile's source and target bytes together
  /// are at most `tile_bytes`, or one element's. What reads a borrowed source comes first.
  TileQueue(const Plan& plan, PlanCompiler& compiler, int threads, uint64_t tile_bytes,
            const BorrowedSources* borrowed = nullptr);

  struct Tile {
    size_t entry;
    Box box;
    bool is_borrowed;  // it reads borrowed sources
  };

  /// The next tile for a thread (counted from 0); nothing when all are handed out.
  std::optional<Tile> next(int thread);
  /// Once a tile is written. True when it was the last that reads borrowed sources.
  bool finish(const Tile& tile);
  /// Whether any tile reads borrowed sources.
  bool has_borrowed() const noexcept { return lent_parts_ > 0; }

 private:
  static constexpr uint32_t kNoFile = UINT32_MAX;

  struct Part {
    size_t entry;
    Box box;  // of a slab
  };
  // Slabs that go together, by the item of their first chunk.
  struct Group {
    uint32_t file = kNoFile;  // of that item
    std::vector<Part> parts;
    bool is_borrowed = false;  // a part of it reads borrowed sources
  };
  // What a thread is at.
  struct Lane {
    uint32_t file = kNoFile;
    size_t group = 0;
    size_t next_part = 0;  // in the group
    size_t entry = 0;      // of the tiles
    std::vector<Box> tiles;
    size_t next_tile = 0;
    bool is_borrowed = false;
  };

  static std::vector<Group> groups_of(const Plan& plan, const BorrowedSources* borrowed);
  void enqueue(bool borrowed);
  bool take_group(Lane& lane);
  bool refill(Lane& lane);
  std::vector<Box> cut(const Part& part) const;

  const Plan& plan_;
  PlanCompiler& compiler_;
  uint64_t tile_bytes_;
  std::mutex mutex_;
  std::vector<Group> groups_;
  std::map<uint32_t, std::deque<size_t>> waiting_;  // groups that no thread has taken, by file
  std::deque<uint32_t> turns_;  // these files, in the order in which threads are sent to them
  std::vector<Lane> lanes_;
  bool has_later_ = false;  // groups that wait until all that read borrowed sources are taken
  size_t lent_parts_ = 0;   // of such groups, before the first tile is handed out
  size_t lent_left_ = 0;    // of those parts, what is not cut into tiles yet, and those tiles
};

}  // namespace ferry
