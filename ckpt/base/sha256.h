// SHA-256, for the one format that asks for it (ckpt/integrity/manifest/sha256_manifest.h).
// Everything else uses XXH3-128 (digest.h), which is many times as fast.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ferry {

using Sha256 = std::array<uint8_t, 32>;

/// 64 lower-case hexadecimal digits, as sha256sum prints them.
std::string to_hex(const Sha256& hash);

/// Parses what to_hex() returns; nothing for any other text.
std::optional<Sha256> parse_sha256(std::string_view hex);

/// The hash of bytes that come in pieces.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(Sha256Stream&&) noexcept;
  Sha256Stream& operator=(Sha256Stream&&) noexcept;

  void add(std::span<const std::byte> bytes);
  /// The digest of everything added; starts a new one.
  Sha256 finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ferry
