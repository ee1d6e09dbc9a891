#include "ckpt/engine/tiles/buffer.h"

#include <sys/mman.h>

#include <new>

namespace ferry {
namespace {

constexpr std::size_t kHugePageBytes = 2 << 20;
constexpr std::size_t kSmallPageBytes = 4 << 10;

}  // namespace

void Buffer::Free::operator()(std::byte* bytes) const noexcept {
  ::operator delete(bytes, std::align_val_t(alignment));
}

std::span<std::byte> Buffer::take(uint64_t bytes) {
  if (size_ < bytes) {
    bytes_.reset();  // not both at once
    size_ = 0;
    const std::size_t alignment = bytes >= kHugePageBytes ? kHugePageBytes : kSmallPageBytes;
    auto* fresh = static_cast<std::byte*>(::operator new(bytes, std::align_val_t(alignment)));
    bytes_ = std::unique_ptr<std::byte[], Free>(fresh, Free{alignment});
    size_ = bytes;
    // Faults and address look-ups 512 times rarer. No matter when it is refused.
    if (alignment == kHugePageBytes) ::madvise(fresh, bytes, MADV_HUGEPAGE);
  }
  return {bytes_.get(), bytes};
}

}  // namespace ferry
