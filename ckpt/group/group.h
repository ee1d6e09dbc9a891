// The ranks that do one thing together: threads of a process, or processes.
//
//   const std::vector<std::string> all = group.gather(own);      // rank 0 has everyone's
//   const std::string order = group.broadcast(plan_from(all));   // everyone has rank 0's
//
// thread_groups() makes groups of threads, mpi_group() (group/mpi/mpi_group.h) of processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/base/error.h"

namespace ferry {

/// One rank's membership in a group of ranks, and their collective operations.
///
/// **Order.** All ranks of a group call the same operations in the same order; `bytes` may have any
/// length on each, none included. Where a rank gets a message of another operation than its own,
/// all throw (mismatch); where none shows it, ranks that call different ones wait for ever. A
/// rank's part may be over before others have begun theirs, except that exchange(), barrier() and
/// split() return when all ranks have called them.
///
/// **Threads.** One thread of a rank at a time calls the operations of one group. Groups that were
/// split from each other may be called by different threads at the same time. abort() may be called
/// by any thread at any time.
///
/// **Errors.** What an operation throws on one rank ends the group on all: ranks that are in one,
/// or call one later, throw, too. A rank that throws elsewhere, where others may wait for it, has
/// to end the group by abort(), as together(), or_abort() and abort_with_current_exception() do.
/// For threads it is enough that the rank's object is destroyed (cancelled on those that need it),
/// for processes that they end without MPI_Finalize: then the launcher ends the others.
///
/// **Cost**, of n ranks: messages of each rank and of rank 0 alike are about log2(n) an operation.
/// gather() and scatter() pass a rank's bytes on up to log2(n) times; rank n/2 passes on half of
/// all of them, and rank 0 needs about twice the memory of what it has in the end. exchange()
/// leaves everyone's bytes with everyone: for a few bytes, or few ranks.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const noexcept = 0;  // from 0
  virtual int size() const noexcept = 0;  // at least 1

  /// Gives `bytes` to all and returns everyone's, by rank.
  virtual std::vector<std::string> exchange(std::string bytes) = 0;

  /// Gives `bytes` to rank 0, which returns everyone's, by rank; others return nothing.
  virtual std::vector<std::string> gather(std::string bytes) = 0;

  /// Returns rank 0's `bytes`; those of others are ignored.
  virtual std::string broadcast(std::string bytes) = 0;

  /// Returns parts[rank()] of rank 0's `parts`, which has one for each rank (else invalid, on all
  /// ranks); those of others are ignored.
  virtual std::string scatter(std::vector<std::string> parts) = 0;

  /// Returns when all ranks have called it.
  virtual void barrier() = 0;

  /// The group of all ranks that gave the same `color`, by rising `key` and, where that is the
  /// same, by their ranks here. Null for a negative color. It may be used together with this one
  /// and after it.
  virtual std::shared_ptr<Group> split(int color, int key) = 0;

  /// Ends this group, all that it was split from and all that were split from those: each operation
  /// that a rank is in, or calls later, throws an Error of this kind and message, with "rank N: "
  /// before it, N being this rank's in the group that all were split from. The first counts; what
  /// ranks call at the same time may differ.
  virtual void abort(const Error& error) noexcept = 0;

  /// Throws the error of abort(), where this rank has received one: for waiting for other ranks
  /// outside an operation. May be called by any thread at any time.
  virtual void check() = 0;
};

/// For a handler of exceptions: abort() with that which is handled. std::bad_alloc is exhausted,
/// what is no ferry::Error else is internal.
void abort_with_current_exception(Group& group) noexcept;

/// A group of one.
std::shared_ptr<Group> lone_group();

/// Groups for `size` threads of this process, by rank (invalid below 1). A rank whose object goes
/// away while others still need it breaks the group: their operations throw Error(cancelled).
std::vector<std::shared_ptr<Group>> thread_groups(int size);

}  // namespace ferry
