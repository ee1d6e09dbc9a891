// Hands out the tiles of a plan to threads.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "ckpt/core/plan.h"
#include "ckpt/engine/transfer.h"

namespace ferry {

/// Each thread gets the tiles of one entry in their order, and the entries of one item, so that
/// what it writes goes on where it wrote last; threads without work of their own help the others.
/// Safe from several threads.
class TileQueue {
 public:
  /// The plan and the compiler must outlive the queue. A tile's source and target bytes together
  /// are at most `tile_bytes`, or one element's.
  TileQueue(const Plan& plan, PlanCompiler& compiler, int threads, uint64_t tile_bytes);

  struct Tile {
    size_t entry;
    Box box;
  };

  /// The next tile for a thread (counted from 0); nothing when all are handed out.
  std::optional<Tile> next(int thread);

 private:
  // What a thread is at.
  struct Lane {
    size_t group = 0;       // of entries, beyond which all but `entries_left` are handed out
    size_t next_entry = 0;  // in the group
    size_t entry = 0;
    std::vector<Box> tiles;
    size_t next_tile = 0;
  };

  bool refill(Lane& lane);
  std::vector<Box> cut(size_t position) const;

  const Plan& plan_;
  PlanCompiler& compiler_;
  uint64_t tile_bytes_;
  std::mutex mutex_;
  std::vector<std::vector<size_t>> groups_;  // entries by the item of their first chunk
  size_t next_group_ = 0;
  std::vector<Lane> lanes_;
};

}  // namespace ferry
