// Saves by all ranks of a group, one after another.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "ckpt/memory/save.h"
#include "ckpt/memory/saving/gathered_shards.h"
#include "ckpt/memory/snapshot_format.h"
#include "ckpt/store/run_store.h"

namespace ferry {

/// What one rank brings when the ranks agree on a save.
struct Contribution {
  bool ended = false;    // the rank saves no more; nothing else but the next is said
  bool stopped = false;  // the rank was asked to stop
  int64_t iteration = 0;
  std::string problem;  // why the rank has nothing to give for this iteration; empty: it has
  ErrorKind problem_kind = ErrorKind::mismatch;
  Snapshot snapshot;
};

/// What a rank brings: its snapshot, or what is wrong with it (checked_bytes, its iteration).
Contribution contribution_of(Snapshot snapshot);
/// What a rank brings that had an error before it could take a snapshot.
Contribution failed_contribution(int64_t iteration, const Error& error);

/// What all ranks bring to that, in the same words for all of them.
struct Round {
  int64_t iteration = 0;    // the lowest that any rank brings: it is saved, or fails, now
  bool is_over = false;     // all ranks have ended
  bool is_stopped = false;  // any rank was asked to stop
  /// Why it cannot be saved: a rank has ended, or is at another iteration. Empty: it can.
  std::string problem;
  ErrorKind problem_kind = ErrorKind::mismatch;

  void check() const;  // throws the problem, as a SharedError
};

/// One of each rank; keeps what does not change from one save to the next. Where each rank lays out
/// and writes files of its own (OwnFilesFormat), rank 0 learns names and boxes of all once, as long
/// as their shapes stay the same, and with each save the places of what was written and its
/// digests; it writes what names them all, and commits.
class GroupSaver {
 public:
  /// The group must outlive it.
  GroupSaver(std::shared_ptr<const FileSystem> file_system, std::string run_folder, Group& group,
             SaveOptions options);

  Round agree(const Contribution& own);

  /// Saves what the ranks brought to a round without a problem. As save(). `borrowed`: which
  /// regions, by their positions, are read from elsewhere than their own memory; may be null.
  std::vector<std::string> save(const Round& round, const Snapshot& own,
                                const BorrowedSources* borrowed = nullptr);

 private:
  bool leads() const { return group_.rank() == 0; }
  std::vector<std::string> save_own_files(const Snapshot& own, const OwnFilesFormat& format,
                                          int64_t iteration, const EngineOptions& engine);
  void agree_on_shards(const std::string& description);
  std::string commit(const OwnFilesFormat& format, const std::vector<std::string>& places,
                     StagedIteration& staged, int64_t iteration);

  std::shared_ptr<const FileSystem> file_system_;
  std::string run_folder_;
  RunStore store_;
  Group& group_;
  SaveOptions options_;
  std::optional<GatheredShards> shards_;  // on rank 0
  std::vector<Digest> known_;             // on rank 0: of the descriptions that `shards_` is of
  std::string chosen_;                    // what this rank writes
};

}  // namespace ferry
