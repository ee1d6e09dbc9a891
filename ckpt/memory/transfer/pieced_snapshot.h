// A snapshot that is larger than the staging memory for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ckpt/engine/borrowed_sources.h"
#include "ckpt/memory/region.h"
#include "ckpt/memory/stager.h"
#include "ckpt/memory/transfer/piece_ring.h"

namespace ferry {

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
