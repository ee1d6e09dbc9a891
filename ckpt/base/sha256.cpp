#include "ckpt/base/sha256.h"

#include <fmt/format.h>
#include <nettle/sha2.h>

namespace ferry {

std::string to_hex(const Sha256& hash) { return fmt::format("{:02x}", fmt::join(hash, "")); }

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
