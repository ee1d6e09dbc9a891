#include "ckpt/base/sha256.h"

#include <fmt/format.h>
#include <nettle/sha2.h>

namespace ferry {

namespace {

int hexadecimal_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::string to_hex(const Sha256& hash) { return fmt::format("{:02x}", fmt::join(hash, "")); }

std::optional<Sha256> parse_sha256(std::string_view hex) {
  Sha256 hash;
  if (hex.size() != 2 * hash.size()) return std::nullopt;
  for (size_t i = 0; i < hash.size(); ++i) {
    const int high = hexadecimal_digit(hex[2 * i]), low = hexadecimal_digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    hash[i] = static_cast<uint8_t>(16 * high + low);
  }
  return hash;
}

struct Sha256Stream::State {
  State() { sha256_init(&context); }
  sha256_ctx context;
};

Sha256Stream::Sha256Stream() : state_(std::make_unique<State>()) {}
Sha256Stream::~Sha256Stream() = default;
Sha256Stream::Sha256Stream(Sha256Stream&&) noexcept = default;
Sha256Stream& Sha256Stream::operator=(Sha256Stream&&) noexcept = default;

void Sha256Stream::add(std::span<const std::byte> bytes) {
  sha256_update(&state_->context, bytes.size(), reinterpret_cast<const uint8_t*>(bytes.data()));
}

Sha256 Sha256Stream::finish() {
  Sha256 hash;
  sha256_digest(&state_->context, hash.size(), hash.data());
  return hash;
}

}  // namespace ferry
