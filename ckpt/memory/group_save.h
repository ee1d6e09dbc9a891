// The steps of a save by all ranks of a group.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/memory/contribution.h"
#include "ckpt/memory/save.h"

namespace ferry {

/// What the ranks bring when they meet.
struct Round {
  std::vector<Contribution> ranks;
  int64_t iteration = 0;  // the lowest that any rank brings: the one that is saved, or fails, now
  /// Why it cannot be saved: a rank has ended, or is at another one. Empty: it can.
  std::string problem;
  ErrorKind problem_kind = ErrorKind::mismatch;

  bool is_over() const;     // all ranks have ended
  bool is_stopped() const;  // any rank was asked to stop
  void check() const;       // throws the problem
};

/// Meets the other ranks; called by each of them.
Round meet(Group& group, const Contribution& own);

/// Saves what the ranks brought to a round without a problem. As save().
std::vector<std::string> save_round(const std::shared_ptr<const FileSystem>& file_system,
                                    const std::string& run_folder, const Round& round,
                                    const SnapshotPlanner& planner, Group& group,
                                    const SaveOptions& options);

/// What a rank brings: its snapshot, or what is wrong with it (checked_bytes, its iteration).
Contribution contribution_of(const Snapshot& snapshot);
/// What a rank brings that had an error before it could take a snapshot.
Contribution failed_contribution(int64_t iteration, const Error& error);

}  // namespace ferry
