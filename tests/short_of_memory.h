// Allocations that fail on demand, by `operator new` of the whole test program.
#pragma once

#include <cstdint>

namespace ferry::test {

enum class Shortage {
  of_one,  // one allocation fails
  of_all,  // and all after it
};

/// While it lives, allocations of this thread fail once `after` of them have succeeded.
class ShortOfMemory {
 public:
  ShortOfMemory(Shortage kind, int64_t after) noexcept;
  ~ShortOfMemory();
  ShortOfMemory(const ShortOfMemory&) = delete;
  ShortOfMemory& operator=(const ShortOfMemory&) = delete;

  /// Whether the next allocation of this thread could fail.
  static bool is_near() noexcept;
};

/// The same for all threads of the program together. One at a time.
class AllShortOfMemory {
 public:
  AllShortOfMemory(Shortage kind, int64_t after) noexcept;
  ~AllShortOfMemory();
  AllShortOfMemory(const AllShortOfMemory&) = delete;
  AllShortOfMemory& operator=(const AllShortOfMemory&) = delete;

  /// Whether an allocation has failed.
  bool has_struck() const noexcept;
};

}  // namespace ferry::test
