// The ranks that do one thing together: threads of a process, or processes.
//
//   const std::vector<std::string> all = group.gather(own);      // rank 0 has everyone's
//   const std::string order = group.broadcast(plan_from(all));   // everyone has rank 0's
//
// thread_groups() makes groups of threads, mpi_group() (group/mpi/mpi_group.h) of processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/base/error.h"

namespace ferry {

/// One rank's membership in a group of ranks, and their collective operations.
///
/// **Order.** All ranks of a group call the same operations in the same order; `bytes` may have any
/// length on each, none included. Where a rank gets a message of another operation than its own,
/// all throw (mismatch); if no message reveals the mismatch, the ranks wait for ever. A
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

/// Calls abort() with the exception that is being handled: std::bad_alloc as exhausted, other
/// foreign exceptions as internal.
void abort_with_current_exception(Group& group) noexcept;

/// A group of one.
std::shared_ptr<Group> lone_group();

/// Groups for `size` threads of this process, by rank (invalid below 1). A rank whose object goes
/// away while others still need it breaks the group: their operations throw Error(cancelled).
std::vector<std::shared_ptr<Group>> thread_groups(int size);

// Steps that the ranks of a group do together: all succeed, or all fail alike.

/// What all ranks throw alike: nobody waits for anybody, and the group goes on.
class SharedError : public Error {
 public:
  using Error::Error;
};

/// Runs `work` on each rank and returns everyone's result, by rank. Where any rank's throws,
/// whatever it is, all ranks throw a SharedError: the first one's, with "rank N: " before its
/// message unless all have the same. What a rank throws outside `work` (there may be no memory for
/// its message) ends the group on all: Group::abort().
std::vector<std::string> together(Group& group, const std::function<std::string()>& work);

/// Returns work(). What it throws, other than a SharedError, is thrown on all ranks: for what a
/// rank does alone while others may wait for it.
template <typename Work>
auto or_abort(Group& group, const Work& work) {
  try {
    return work();
  } catch (const SharedError&) {
    throw;
  } catch (...) {
    abort_with_current_exception(group);
    throw;
  }
}

/// together() for results that rank 0 alone needs: it returns them by rank, others nothing.
std::vector<std::string> gather_together(Group& group, const std::function<std::string()>& work);

/// together() for work that rank 0 alone does: all return its result.
std::string from_first_together(Group& group, const std::function<std::string()>& work);

/// The same for a result of one part for each rank, which returns its own.
std::string scatter_together(Group& group, const std::function<std::vector<std::string>()>& work);

// Groups over transports of your own.

struct Message {
  uint64_t label = 0;  // what it is for, as the receiver has to know it, too
  std::string bytes;
};

/// A rank that is waited for has left the group.
class Departed : public Error {
 public:
  Departed() : Error(ErrorKind::cancelled, "another rank of the group has ended") {}
};

/// One rank's access to the messages of a family of groups: a first one and all that are split from
/// it. Ranks are those of the first group; each group has a number of its own.
///
/// Messages from one rank to another in one group arrive in the order in which they were sent.
/// Several threads may call it for different groups at the same time, and abort() always.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// The first of `count` group numbers, from 1, that no rank was ever given. 0 is the first group.
  virtual uint64_t reserve_groups(uint64_t count) = 0;

  /// Sends the message to each of `ranks`, none of which is this rank. Returns when `message` is no
  /// longer needed. It and receive() throw the error of abort(), or Departed.
  virtual void send(uint64_t group, std::span<const int> ranks, Message message) = 0;
  virtual Message receive(uint64_t group, int from) = 0;

  /// Throws the error of abort().
  virtual void check() = 0;

  /// This rank neither sends nor receives in the group any more.
  virtual void leave(uint64_t group, std::span<const int> members) noexcept = 0;

  /// Makes calls of all ranks of the family throw, as Group::abort() says.
  virtual void abort(const Error& error) noexcept = 0;
};

/// Those of threads of this process, by rank.
std::vector<std::shared_ptr<Transport>> thread_transports(int size);

/// The first group of the family whose messages `transport` carries.
std::shared_ptr<Group> message_group(std::shared_ptr<Transport> transport);

}  // namespace ferry
