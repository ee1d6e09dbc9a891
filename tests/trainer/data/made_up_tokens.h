// Sequences of given lengths for tests, and MD5.
#pragma once

#include <fmt/format.h>
#include <nettle/md5.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/documents/token_source.h"

namespace ferry::test {

/// Token t of sequence s is 100 s + t.
class MadeUpTokens final : public TokenSource {
 public:
  explicit MadeUpTokens(std::vector<int32_t> lengths) : values_(std::move(lengths)) {
    set_lengths(std::as_bytes(std::span(values_)).data(), std::ssize(values_));
  }
  void read(int64_t sequence, int64_t offset, std::span<int32_t> into) const override {
    for (size_t i = 0; i < into.size(); ++i) {
      into[i] = static_cast<int32_t>(100 * sequence + offset) + static_cast<int32_t>(i);
    }
  }
  std::string name() const override { return "made up"; }

 private:
  std::vector<int32_t> values_;
};

inline std::string md5_of(std::span<const std::byte> bytes) {
  md5_ctx context;
  md5_init(&context);
  md5_update(&context, bytes.size(), reinterpret_cast<const uint8_t*>(bytes.data()));
  std::array<uint8_t, MD5_DIGEST_SIZE> digest{};
  md5_digest(&context, digest.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace ferry::test
