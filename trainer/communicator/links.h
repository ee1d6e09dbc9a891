// Lets ranks read each other's memory: the primitive that collectives are built on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ckpt/group/group.h"

namespace ferry {

/// One rank's links to the other ranks of a run: threads of one process, or processes. Offers from
/// one rank to another in a channel are taken in order. Used by one thread of the rank.
///
/// Waiting calls regularly check whether the group was aborted, and throw its error.
class Links {
 public:
  virtual ~Links() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// Lets another rank `to` take the bytes, which must not change until wait() has returned. Does
  /// not block.
  virtual uint64_t offer(int channel, int to, std::span<const std::byte> bytes) = 0;
  /// Waits until this offer was taken.
  virtual void wait(uint64_t offer) = 0;

  /// withdraw() also calls `drain` where ranks are threads: it must return once nobody uses this
  /// rank's memory in ways unknown to links.
  void set_drain(std::function<void()> drain) { drain_ = std::move(drain); }

  /// For an exception handler, before offered memory is freed: aborts the group with the current
  /// exception and returns when nobody reads those bytes any more. The links are unusable
  /// afterwards. (Between processes, it waits only some seconds for a busy rank.)
  virtual void withdraw() noexcept = 0;

  /// Waits for the next offer of `from` and calls `use` with it. internal if its length differs.
  using Use = std::function<void(std::span<const std::byte> bytes)>;
  virtual void take(int channel, int from, size_t bytes, const Use& use) = 0;

  /// Whether the ranks are threads of one process.
  virtual bool are_threads() const noexcept { return false; }
  /// An object shared by the ranks `members` in a channel, where ranks are threads: made by the
  /// first call, kept until all links are gone. Null where ranks are processes.
  using Make = std::function<std::shared_ptr<void>()>;
  virtual std::shared_ptr<void> common(int /*channel*/, const std::vector<int>& /*members*/,
                                       const Make& /*make*/) {
    return nullptr;
  }

 protected:
  std::function<void()> drain_;  // does not throw
};

/// Returns work(). If it throws anything but a SharedError, withdraws this rank's offers while
/// their memory still exists.
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

/// Links between threads of this process, by rank; `groups` are their thread_groups().
std::vector<std::shared_ptr<Links>> thread_links(const std::vector<std::shared_ptr<Group>>& groups);

}  // namespace ferry
