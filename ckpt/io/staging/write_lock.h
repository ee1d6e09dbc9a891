// The sole right to write one target (a folder or a file), among all ferry processes that share the
// file system. It also separates what live writers left from what dead ones did.
//
// leftovers.h says how a writer's life is judged. The lock of a dead one is taken over at once;
// that of one which cannot be judged (of another host, where locks do not show) once nothing of it
// changed for kTakeOverSeconds. If the old owner is still alive, its commit fails and says who took
// over, and what it wrote stays aside for kRemoveSeconds. So one writer wins on any file system;
// locks that every host sees only make the other one notice earlier. LockableFile says where these
// are. docs/decisions/0023-write-locks.md has the reasons.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/lock_record.h"

namespace ferry {

inline constexpr int64_t kTakeOverSeconds = 15 * 60;
/// How long a writer waits for one that only removes, whatever the wait_seconds of its options: a
/// prune during a training must not make a save fail, and large folders take long to remove.
inline constexpr double kRemovalWaitSeconds = 10 * 60;

/// What to do where another writer locks the same target.
struct WriteLockOptions {
  bool take_over = false;   // a writer that cannot be judged is taken for dead at once
  double wait_seconds = 0;  // for a living writer to be done
  /// Only to remove the target, or leftovers next to it: writers wait until that is done, others
  /// that remove do not.
  bool to_remove = false;
};

class WriteLock {
 public:
  /// Takes the right and removes what dead writers of the target left, putting the former target
  /// back where they died between two renames. busy when a living process has it to write, one that
  /// cannot be judged, or, beyond kRemovalWaitSeconds, one that removes; the message says who and
  /// since when. The parent folder must exist.
  WriteLock(std::shared_ptr<const FileSystem> file_system, std::string target,
            const WriteLockOptions& options = {});
  ~WriteLock();  // releases the lock; what is set aside is left
  WriteLock(const WriteLock&) = delete;
  WriteLock& operator=(const WriteLock&) = delete;

  const std::string& target() const noexcept { return target_; }
  /// Where to write, to put the former target, to move what is to be removed: names next to the
  /// target that no other lock uses.
  std::string partial_path() const { return aside_path(Aside::partial); }
  std::string old_path() const { return aside_path(Aside::old); }
  std::string trash_path() const { return aside_path(Aside::trash); }

  /// Removes what is at partial_path(), if possible, and reports no error: for a writer that ends
  /// with one of its own.
  void drop_partial() const noexcept;

  /// Releases the target; what is set aside stays this lock's until it ends.
  void let_others_lock();

  /// busy when another process took the right over: what was written must not be put in place.
  void check() const;

  /// Leftovers that were kept, and why.
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 private:
  struct Refusal {
    std::string message;
    double wait_seconds = 0;  // for so long a writer waits for it to pass
  };

  std::string aside_path(Aside kind) const;
  std::string lock_path() const;
  void write_record();
  std::optional<Refusal> try_take(const WriteLockOptions& options);
  std::optional<Refusal> set_aside(const WriteLockOptions& options);
  Refusal refusal_of_living(const LockRecord& found) const;
  void put_back(const std::string& aside);
  bool holds_lock_name() const;
  void remove_moved_record() const;
  void remove_leftovers();
  void remove_leftovers_of(const std::string& token);

  std::shared_ptr<const FileSystem> file_system_;
  std::string target_;
  SplitPath parts_;
  LockRecord record_;
  int64_t now_seconds_ = 0;  // by the file system's clock, when the lock began
  std::unique_ptr<LockableFile> lock_;
  std::vector<std::string> notes_;
};

}  // namespace ferry
