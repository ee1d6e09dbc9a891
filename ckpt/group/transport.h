// How messages get from rank to rank: the base of a Group (message_group.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/base/error.h"

namespace ferry {

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

}  // namespace ferry
