// Memory that ranks let each other read: what collectives are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ckpt/group/group.h"
#include "ckpt/group/together.h"

namespace ferry {

/// One rank's links to the ranks of a family: threads of a process, or processes. What a rank
/// offers to another in one channel is taken in the order in which it was offered. Used by one
/// thread of the rank.
///
/// Whoever waits looks now and then whether the family's group was aborted, and throws its error.
class Links {
 public:
  virtual ~Links() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// Lets `to` (another rank) take the bytes, which stay as they are until wait() has returned.
  /// Returns at once.
  virtual uint64_t offer(int channel, int to, std::span<const std::byte> bytes) = 0;
  /// Waits until an offer of this rank was taken.
  virtual void wait(uint64_t offer) = 0;

  /// What withdraw() calls, too, where ranks are threads: it returns when nobody uses this rank's
  /// memory any more in ways that links do not know of.
  void set_drain(std::function<void()> drain) { drain_ = std::move(drain); }

  /// For a handler of exceptions, before what this rank offered goes: aborts the group with the
  /// exception that is handled, and returns when nobody reads those bytes any more. Ranks can do
  /// nothing else with their links from then on. (Between processes, a rank that is busy elsewhere
  /// is waited for for some seconds.)
  virtual void withdraw() noexcept = 0;

  /// Waits for what `from` offers next, and calls `use` with it. internal when that has another
  /// length.
  using Use = std::function<void(std::span<const std::byte> bytes)>;
  virtual void take(int channel, int from, size_t bytes, const Use& use) = 0;

  /// Whether the ranks are threads of one process.
  virtual bool are_threads() const noexcept { return false; }
  /// Something that the ranks `members` have in common in that channel, where ranks are threads:
  /// what the first call makes, until the links of all have gone. Null where they are processes.
  using Make = std::function<std::shared_ptr<void>()>;
  virtual std::shared_ptr<void> common(int /*channel*/, const std::vector<int>& /*members*/,
                                       const Make& /*make*/) {
    return nullptr;
  }

 protected:
  std::function<void()> drain_;  // does not throw
};

/// Returns work(). What it throws, other than a SharedError, withdraws what this rank offered while
/// its memory is still there.
template <typename Work>
auto or_withdraw(Links& links, const Work& work) {
  try {
    return work();
  } catch (const SharedError&) {
    throw;
  } catch (...) {
    links.withdraw();
    throw;
  }
}

/// Those of threads of this process, by rank; `groups` are thread_groups() of as many.
std::vector<std::shared_ptr<Links>> thread_links(const std::vector<std::shared_ptr<Group>>& groups);

}  // namespace ferry
