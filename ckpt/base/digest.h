// Checks of bytes: XXH3-128 digests and the CRC-32 of zip records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ferry {

/// XXH3-128 of some bytes, seed 0.
struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;

  bool operator==(const Digest&) const = default;
};

/// 32 lower-case hexadecimal digits, as xxh128sum prints them.
std::string to_hex(const Digest& digest);

Digest digest_of(std::span<const std::byte> bytes);

/// The digest of bytes that come in pieces.
class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(DigestStream&&) noexcept;
  DigestStream& operator=(DigestStream&&) noexcept;

  void add(std::span<const std::byte> bytes);
  /// The digest of everything added so far; more may follow.
  Digest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// CRC-32 as zip and zlib define it. `before` is that of the bytes which come before these.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace ferry
