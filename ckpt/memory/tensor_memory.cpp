#include "ckpt/memory/tensor_memory.h"

#include <iterator>
#include <new>
#include <utility>

namespace ferry {
namespace {

// Smaller ones cost more to keep in order than to allocate.
constexpr uint64_t kLeastKept = 256 << 10;

}  // namespace

struct TensorMemory::Loan {
  ~Loan() {
    if (const auto from = home.lock()) from->take_back(std::move(buffer), bytes);
  }

  std::weak_ptr<TensorMemory> home;
  Buffer buffer;
  uint64_t bytes = 0;
};

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
  const std::span<std::byte> memory = loan->buffer.take(loan->bytes);
  loan->home = weak_from_this();
  return {memory.first(bytes), memory.size(), std::move(loan)};
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
