// Memory that tiles pass through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ferry {

/// Uninitialised bytes; large ones on huge pages where the system has them.
class Buffer {
 public:
  /// The first `bytes` of the buffer, aligned to cache lines. What it held is lost when it grows.
  std::span<std::byte> take(uint64_t bytes);

 private:
  struct Free {
    std::size_t alignment = 0;
    void operator()(std::byte* bytes) const noexcept;
  };
  std::unique_ptr<std::byte[], Free> bytes_{nullptr, Free{}};
  uint64_t size_ = 0;
};

}  // namespace ferry
