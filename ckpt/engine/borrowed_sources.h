// Sources that somebody waits for.
#pragma once

#include <cstdint>
#include <memory>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Files of a plan's source that a run borrows: it reads them before all others, and says when it
/// is done.
class BorrowedSources {
 public:
  virtual ~BorrowedSources() = default;

  /// How a file of the source catalog is read, instead of from its path; null: it is not borrowed.
  /// Safe from several threads.
  virtual std::shared_ptr<const ReadableFile> file(uint32_t number) const = 0;

  /// Called once, from any of the run's threads, when none of them is read any more, which may be
  /// long before the run is over. Not called by a run that fails.
  virtual void release() const noexcept = 0;
};

}  // namespace ferry
