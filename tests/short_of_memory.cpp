#include "tests/short_of_memory.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace ferry::test {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// How many allocations are left until one fails, of this thread and of all.
thread_local int64_t own_left = kNever;
thread_local Shortage own_kind = Shortage::of_one;
std::atomic<int64_t> all_left{kNever};
std::atomic<Shortage> all_kind{Shortage::of_one};

bool own_fails() noexcept {
  if (own_left == kNever || own_left-- > 0) return false;
  own_left = own_kind == Shortage::of_one ? kNever : 0;
  return true;
}

bool fails_for_all() noexcept {
  if (all_left.load(std::memory_order_relaxed) == kNever) return false;
  const int64_t left = all_left.fetch_sub(1);
  return all_kind == Shortage::of_one ? left == 0 : left <= 0;
}

void* allocate(size_t bytes) noexcept {
  if (own_fails() || fails_for_all()) return nullptr;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* allocate_or_throw(size_t bytes) {
  void* const memory = allocate(bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

ShortOfMemory::ShortOfMemory(Shortage kind, int64_t after) noexcept {
  own_kind = kind;
  own_left = after;
}
ShortOfMemory::~ShortOfMemory() { own_left = kNever; }
bool ShortOfMemory::is_near() noexcept { return own_left != kNever; }

AllShortOfMemory::AllShortOfMemory(Shortage kind, int64_t after) noexcept {
  all_kind = kind;
  all_left = after;
}
AllShortOfMemory::~AllShortOfMemory() { all_left = kNever; }
bool AllShortOfMemory::has_struck() const noexcept { return all_left < 0; }

}  // namespace ferry::test

void* operator new(size_t bytes) { return ferry::test::allocate_or_throw(bytes); }
void* operator new[](size_t bytes) { return ferry::test::allocate_or_throw(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return ferry::test::allocate(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return ferry::test::allocate(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
