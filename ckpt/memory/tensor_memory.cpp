#include "ckpt/memory/tensor_memory.h"

#include <sys/mman.h>

#include <iterator>
#include <new>
#include <utility>

namespace ferry {
namespace {

// Smaller ones cost more to keep in order than to allocate. These are mapped, so that the system
// has them back when they are freed.
constexpr uint64_t kLeastKept = 256 << 10;
constexpr std::align_val_t kAlignment{64};

}  // namespace

struct TensorMemory::Loan {
  ~Loan() {
    if (const auto from = home.lock()) from->take_back(std::move(buffer), bytes);
    *is_back = true;
  }

  std::weak_ptr<TensorMemory> home;
  Buffer buffer;
  uint64_t bytes = 0;
  const std::shared_ptr<std::atomic<bool>> is_back = std::make_shared<std::atomic<bool>>(false);
};

void TensorMemory::Free::operator()(std::byte* bytes) const noexcept {
  if (mapped_bytes > 0) {
    ::munmap(bytes, mapped_bytes);
  } else {
    ::operator delete(bytes, kAlignment);
  }
}

TensorMemory::Buffer TensorMemory::allocate(uint64_t bytes) {
  if (bytes < kLeastKept) {
    return Buffer(static_cast<std::byte*>(::operator new(bytes, kAlignment)), Free{});
  }
  void* const mapped =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  return Buffer(static_cast<std::byte*>(mapped), Free{bytes});
}

TensorMemory::Lease TensorMemory::take(uint64_t bytes, uint64_t most_bytes) {
  auto loan = std::make_shared<Loan>();
  loan->bytes = bytes;
  {
    const std::lock_guard lock(mutex_);
    const auto fitting = unused_.lower_bound(bytes);
    if (bytes >= kLeastKept && fitting != unused_.end() && fitting->first <= 2 * bytes) {
      loan->bytes = fitting->first;
      loan->buffer = std::move(fitting->second);
      unused_bytes_ -= fitting->first;
      unused_.erase(fitting);
    }
    while (!unused_.empty() && unused_bytes_ + loan->bytes > most_bytes) {
      const auto largest = std::prev(unused_.end());
      unused_bytes_ -= largest->first;
      unused_.erase(largest);
    }
  }
  if (!loan->buffer) loan->buffer = allocate(bytes);
  loan->home = weak_from_this();
  const std::span<std::byte> memory(loan->buffer.get(), bytes);
  return {memory, loan->bytes, loan, loan->is_back};
}

void TensorMemory::take_back(Buffer buffer, uint64_t bytes) {
  if (bytes < kLeastKept) return;
  const std::lock_guard lock(mutex_);
  try {
    unused_.emplace(bytes, std::move(buffer));
    unused_bytes_ += bytes;
  } catch (const std::bad_alloc&) {
    // Then it is freed.
  }
}

}  // namespace ferry
