// Sources that somebody waits for.
#pragma once

#include <cstdint>
#include <memory>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Files of a plan's source that are lent to a run: it reads them before all others, and says when
/// it has.
class LentSources {
 public:
  virtual ~LentSources() = default;

  /// How a file of the source catalog is read, instead of from where it lies; null: it is not lent.
  /// Safe from several threads.
  virtual std::shared_ptr<const ReadableFile> file(uint32_t number) const = 0;

  /// Called once, from any of the run's threads, when none of them is read any more, which may be
  /// long before the run is over. Not called by a run that fails.
  virtual void give_back() const noexcept = 0;
};

}  // namespace ferry
