#include "ckpt/memory/staging_buffers.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/threads.h"

namespace ferry {
namespace {

constexpr uint64_t kLineBytes = 64;
constexpr uint64_t kCopyBytes = 4 << 20;  // at once, by a thread

uint64_t line_aligned(uint64_t bytes) {
  return checked_add<uint64_t>(bytes, kLineBytes - 1, "a snapshot") / kLineBytes * kLineBytes;
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
    slot->buffer.take(slot->bytes);
  } catch (...) {
    slot->buffer = {};
    lock.lock();
    bytes_ -= std::exchange(slot->bytes, 0);
    --taken_;
    fail(ErrorKind::exhausted, "no memory to stage a snapshot of {} bytes", bytes);
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
    bytes = checked_add(bytes, line_aligned(checked_bytes(region)), "a snapshot");
  }
  return bytes;
}

void stage(std::vector<ConstRegion>& regions, std::span<std::byte> buffer, int threads) {
  struct Copy {
    const std::byte* from;
    std::byte* to;
    uint64_t bytes;
  };
  std::vector<Copy> copies;
  std::byte* to = buffer.data();
  for (ConstRegion& region : regions) {
    const uint64_t bytes = checked_bytes(region);
    for (uint64_t at = 0; at < bytes; at += kCopyBytes) {
      copies.push_back({region.data + at, to + at, std::min(kCopyBytes, bytes - at)});
    }
    region.data = to;
    to += line_aligned(bytes);
  }
  std::atomic<size_t> next{0};
  on_threads(std::min(threads, static_cast<int>(copies.size())), [&](int) {
    for (size_t i = next++; i < copies.size(); i = next++) {
      std::memcpy(copies[i].to, copies[i].from, copies[i].bytes);
    }
  });
}

}  // namespace ferry
