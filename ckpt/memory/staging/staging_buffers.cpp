#include "ckpt/memory/staging/staging_buffers.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/checked.h"

namespace ferry {
namespace {

constexpr uint64_t kAlignmentBytes = 64;

uint64_t aligned(uint64_t bytes) {
  return checked_add<uint64_t>(bytes, kAlignmentBytes - 1, "a snapshot") / kAlignmentBytes *
         kAlignmentBytes;
}

}  // namespace

std::unique_ptr<StagingBuffers::Slot> StagingBuffers::take(uint64_t bytes) {
  if (bytes > most_bytes_) {
    fail(ErrorKind::exhausted, "a snapshot of {} bytes does not fit in {} bytes of staging memory",
         bytes, most_bytes_);
  }
  std::unique_lock lock(mutex_);
  std::unique_ptr<Slot> slot;
  changed_.wait(lock, [&] { return (slot = try_take(bytes)) != nullptr; });
  lock.unlock();
  try {
    if (slot->memory.bytes.size() < slot->bytes) slot->memory = stager_->allocate(slot->bytes);
  } catch (...) {
    lock.lock();
    bytes_ -= slot->bytes;
    --taken_;
    throw;
  }
  return slot;
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

void StagingBuffers::give_back(std::unique_ptr<Slot> slot) {
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
