// What is next to targets while they are written or after a crash (lock_record.h), and whether its
// writer is alive.
//
// A life is judged by the kernel's lock on the writer's record (LockableFile), and where there are
// no locks by host, process number and start time. A writer on another host lives when its lock
// shows; else it cannot be judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/lock_record.h"

namespace ferry {

/// After so long without a change, what is left by a writer that cannot be judged is removed.
inline constexpr int64_t kRemoveSeconds = 24 * 3600;

/// Whether the owner of the record in file `path` lives. A missing file's is dead.
Life life_of(const FileSystem& file_system, const std::string& path, const LockRecord& record);

/// All that one lock left next to one target.
struct Leftover {
  std::string target_name;
  std::string token;
  std::vector<std::string> names;  // in the folder; without records
  Life life = Life::unknown;
  std::string who;                // "process 123 on node7 since ..." or "an unknown process"
  int64_t unchanged_seconds = 0;  // since anything of it changed

  bool removable() const {
    return life == Life::dead || (life == Life::unknown && unchanged_seconds >= kRemoveSeconds);
  }
};

/// Leftovers in `folder` next to `target_name`, or next to any target when that is empty. Lock
/// files that hold their name (".ferry-lock.NAME") count with what has their token. `now_seconds`:
/// the current time, preferably by the file system's clock, which sets times of change.
std::vector<Leftover> find_leftovers(const FileSystem& file_system, const std::string& folder,
                                     const std::string& target_name, int64_t now_seconds);

/// When anything at or below a path last changed, so many folders deep; links are not followed.
int64_t newest_change(const FileSystem& file_system, const std::string& path, int depth);

/// How long nothing of the `names` in `folder`, or below them, has changed.
int64_t unchanged_seconds(const FileSystem& file_system, const std::string& folder,
                          const std::vector<std::string>& names, int64_t now_seconds);

}  // namespace ferry
