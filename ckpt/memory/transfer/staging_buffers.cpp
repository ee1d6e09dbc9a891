#include "ckpt/memory/transfer/staging_buffers.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr uint64_t kLeastBytes = 64 << 10;  // where less cannot be had, there is none

uint64_t aligned(uint64_t bytes) {
  return checked_add<uint64_t>(bytes, kStagedAlignmentBytes - 1, "a snapshot") /
         kStagedAlignmentBytes * kStagedAlignmentBytes;
}

}  // namespace

std::unique_ptr<StagingBuffers::Slot> StagingBuffers::take(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  if (bytes > 0 && most_bytes_ == 0) {
    fail(ErrorKind::exhausted,
         "no staging memory is allowed, and a snapshot of {} bytes needs some", bytes);
  }
  uint64_t requested = std::min(bytes, most_bytes_);
  for (;;) {
    std::unique_ptr<Slot> slot;
    changed_.wait(lock, [&] { return (slot = try_take(requested)) != nullptr; });
    lock.unlock();
    bool is_had = false;
    std::exception_ptr problem;  // other than out of memory
    try {
      is_had = allocate(*slot);
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    if (is_had) return slot;
    bytes_ -= slot->bytes;
    --taken_;
    if (problem) std::rethrow_exception(problem);
    if (requested <= kLeastBytes) {
      fail(ErrorKind::exhausted, "no memory to stage any of a snapshot of {} bytes", bytes);
    }
    requested = std::max(requested / 2, kLeastBytes);
    most_bytes_ = bytes_ + requested;
  }
}

// False when there is no such memory.
bool StagingBuffers::allocate(Slot& slot) {
  if (slot.memory.bytes.size() >= slot.bytes) return true;
  try {
    slot.memory = stager_->allocate(slot.bytes);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::exhausted) throw;
    return false;
  }
}

// The smallest free buffer that is large enough, else a new one in place of free ones.
std::unique_ptr<StagingBuffers::Slot> StagingBuffers::try_take(uint64_t bytes) {
  if (taken_ == most_) return nullptr;
  std::sort(free_.begin(), free_.end(),
            [](const auto& a, const auto& b) { return a->bytes < b->bytes; });
  auto found = std::find_if(free_.begin(), free_.end(),
                            [&](const auto& slot) { return slot->bytes >= bytes; });
  if (found != free_.end()) {
    auto slot = std::move(*found);
    free_.erase(found);
    ++taken_;
    return slot;
  }
  const auto room = [&] {
    return taken_ + static_cast<int>(free_.size()) < most_ && bytes <= most_bytes_ - bytes_;
  };
  while (!free_.empty() && !room()) {
    bytes_ -= free_.back()->bytes;
    free_.pop_back();
  }
  if (!room()) return nullptr;
  free_.reserve(free_.size() + static_cast<size_t>(taken_) + 1);  // giving back needs no memory
  auto slot = std::make_unique<Slot>();
  slot->bytes = bytes;
  bytes_ += bytes;
  ++taken_;
  return slot;
}

void StagingBuffers::release(std::unique_ptr<Slot> slot) {
  const std::lock_guard lock(mutex_);
  --taken_;
  free_.push_back(std::move(slot));
  changed_.notify_one();
}

uint64_t StagingBuffers::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

uint64_t staged_bytes(std::span<const ConstRegion> regions) {
  uint64_t bytes = 0;
  for (const ConstRegion& region : regions) {
    bytes = checked_add(bytes, aligned(checked_bytes(region)), "a snapshot");
  }
  return bytes;
}

std::vector<StagingCopy> copies_into(std::span<std::byte> buffer,
                                     std::vector<ConstRegion>& regions) {
  std::vector<StagingCopy> copies;
  std::byte* to = buffer.data();
  for (ConstRegion& region : regions) {
    const uint64_t bytes = checked_bytes(region);
    copies.push_back({region.data, to, bytes});
    region.data = to;
    to += aligned(bytes);
  }
  return copies;
}

}  // namespace ferry
