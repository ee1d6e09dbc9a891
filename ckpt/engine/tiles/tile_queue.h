// Hands out the tiles of a plan to threads.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "ckpt/core/plan.h"
#include "ckpt/engine/transfers/transfer.h"

namespace ferry {

/// Each thread gets the tiles of one entry in their order, and the entries of one item, so that
/// what it writes goes on where it wrote last, and files of its own as long as there are any: file
/// systems let one thread at a time write to a file. Threads without work of their own help the
/// others. Safe from several threads.
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
  static constexpr uint32_t kNoFile = UINT32_MAX;

  // Entries that go together, by the item of their first chunk.
  struct Group {
    uint32_t file = kNoFile;  // of that item
    std::vector<size_t> entries;
  };
  // What a thread is at.
  struct Lane {
    uint32_t file = kNoFile;
    size_t group = 0;       // of entries, beyond which all but `entries_left` are handed out
    size_t next_entry = 0;  // in the group
    size_t entry = 0;
    std::vector<Box> tiles;
    size_t next_tile = 0;
  };

  static std::vector<Group> groups_of(const Plan& plan);
  bool take_group(Lane& lane);
  bool refill(Lane& lane);
  std::vector<Box> cut(size_t position) const;

  const Plan& plan_;
  PlanCompiler& compiler_;
  uint64_t tile_bytes_;
  std::mutex mutex_;
  std::vector<Group> groups_;
  std::map<uint32_t, std::deque<size_t>> waiting_;  // groups that no thread has taken, by file
  std::vector<Lane> lanes_;
};

}  // namespace ferry
