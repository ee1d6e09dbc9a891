// Memory for what a pass computes, taken and given back like a stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/kernels.h"

namespace ferry {

/// A block of a device's memory. Whatever a pass needs is taken from it in the order of the network
/// and given back in the reverse order, so that nothing is ever searched for, and its size is known
/// before anything runs: a pass over kernels that do nothing (planning_kernels) tells it.
class Arena {
 public:
  /// Nothing is allocated; what is taken lies nowhere.
  Arena() = default;
  Arena(kernels::Kernels& kernels, int64_t bytes)
      : memory_(kernels.allocate(static_cast<size_t>(bytes))), bytes_(bytes) {}

  /// internal when the block is full.
  kernels::Array take(int64_t count, kernels::Type type) {
    return {take_bytes(count * size_bytes(type)), type};
  }
  template <typename Element>
  Element* take(int64_t count) {
    return static_cast<Element*>(take_bytes(count * static_cast<int64_t>(sizeof(Element))));
  }

  int64_t size() const noexcept { return bytes_; }
  int64_t used() const noexcept { return used_; }
  int64_t peak() const noexcept { return peak_; }
  /// Gives back all that was taken since `used` bytes were.
  void release(int64_t used) noexcept { used_ = used; }

 private:
  void* take_bytes(int64_t bytes);

  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0, used_ = 0, peak_ = 0;
};

/// Gives back what is taken during its life.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), used_(arena.used()) {}
  ~ArenaScope() { arena_.release(used_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  int64_t used_;
};

}  // namespace ferry
