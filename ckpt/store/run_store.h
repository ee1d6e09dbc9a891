// The owner of a run folder: how an iteration comes into it and how it leaves.
//
// A save: begin() locks the iteration and gives a folder next to it, under a name that no program
// takes for a checkpoint; the writer puts files there, each synced; commit() syncs the folders,
// renames, syncs the run folder, and only then moves the tracker (written aside, synced, renamed,
// synced). Other programs see whole iterations only, and a tracker that names a whole one. Killed
// at any moment, the last good checkpoint opens; the next begin() or prune() removes what is left.
//
// An iteration that is replaced stays until the new one is whole, then both names are exchanged in
// one step. Where the file system cannot (NFS), the former one has another name for the moment
// between two renames: ferry still opens it there, and the next begin() or prune() puts it back.
//
// Write locks (write_lock.h) and reader locks (reader_lock.h) keep ferry processes from writing the
// same iteration and from removing what another one writes or reads; their headers say what holds
// between hosts on NFS and Lustre. Other programs take no notice of either: prune() protects what
// the tracker names, the newest good iteration and, unless asked otherwise, everything unfinished.
//
// Errors: as FileSystem, and those named below. Objects may be used by one thread at a time; any
// number of processes may have one of the same folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/staging.h"
#include "ckpt/store/options.h"
#include "ckpt/store/run_folder.h"

namespace ferry {

inline constexpr double kTrackerWaitSeconds = 60;  // other processes hold it for a few seconds

/// An iteration that is being written. Destroyed without commit(), it leaves nothing.
class StagedIteration {
 public:
  StagedIteration(StagedIteration&&) noexcept;
  StagedIteration& operator=(StagedIteration&&) noexcept;
  ~StagedIteration();

  /// The folder to write into; empty at first. Other processes may write there too.
  const std::string& path() const noexcept;
  /// Where it will be: "runs/a/iter_0000100".
  const std::string& target() const noexcept;
  /// Writes a small file and syncs it. `name` may be in an existing folder.
  void write_file(const std::string& name, const std::string& content);

  /// All files must have been synced by their writers. On error before the rename the run is as it
  /// was; on an error after it, which says so, the iteration is complete and the tracker may lag.
  void commit();

  /// After commit(): warnings (a tracker that was left where it was). Before: leftovers of other
  /// writers that were kept, and why.
  const std::vector<std::string>& notes() const noexcept;

 private:
  friend class RunStore;
  struct State;
  explicit StagedIteration(std::unique_ptr<State> state);
  static std::unique_ptr<WriteLock> commit_run(State& state);
  std::unique_ptr<State> state_;
};

class RunStore {
 public:
  /// Touches nothing. `path` may be missing: then begin() stages the whole run folder, which
  /// appears at commit().
  RunStore(std::shared_ptr<const FileSystem> file_system, std::string path);

  const std::string& path() const noexcept { return path_; }

  /// What is there: tracker, iterations, which are complete.
  RunFolder read() const;

  /// Begins to write an iteration; without a number, `release`. invalid when it is there and
  /// `overwrite` is false, or when the number is negative; busy when another process writes it, or
  /// reads the one to be replaced.
  StagedIteration begin(std::optional<int64_t> iteration, const BeginOptions& options = {}) const;

  /// Makes the tracker name an iteration, or `release`, that is complete (not_found otherwise).
  /// Returns a warning; empty: it was moved, or named it already.
  std::string move_tracker(std::optional<int64_t> iteration, TrackerMove move) const;

  /// Removes what dead writers left in the run folder. Returns what was kept, and why; errors too.
  std::vector<std::string> clean() const;

 private:
  void clean_around(const std::string& folder, const std::string& target_name,
                    std::vector<std::string>& notes) const;

  std::shared_ptr<const FileSystem> file_system_;
  std::string path_;
};

}  // namespace ferry
