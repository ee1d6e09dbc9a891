// The bytes of one item on their way past: CRC-32s of its payloads and the digest of all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "ckpt/base/digest.h"
#include "ckpt/core/plan.h"

namespace ferry {

/// Takes an item's bytes in their order. From one thread at a time.
class ItemStream {
 public:
  using Value = std::array<std::byte, 4>;  // of a CRC-32, little-endian

  explicit ItemStream(const Item& item) : item_(item), position_(item.offset) {}

  /// Offset of the next bytes in the file.
  uint64_t position() const noexcept { return position_; }

  /// Takes the next bytes; CRC-32s of payloads that have passed are put in their places first.
  void pass(std::span<std::byte> bytes);
  /// Takes the next bytes, in which no CRC-32 has its place.
  void pass_elements(std::span<const std::byte> bytes);

  /// Once all have passed.
  Digest digest() const { return stream_.digest(); }
  /// The CRC-32s of payloads that have passed, by place in the file.
  const std::map<uint64_t, Value>& crc32s() const noexcept { return values_; }

 private:
  void check(std::span<const std::byte> bytes);

  const Item& item_;
  uint64_t position_;
  size_t payload_ = 0;  // whose end has not passed
  uint32_t crc_ = 0;    // of its bytes so far
  std::map<uint64_t, Value> values_;
  DigestStream stream_;
};

}  // namespace ferry
