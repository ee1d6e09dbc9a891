#include "ckpt/base/digest.h"

#include <fmt/format.h>
#include <isa-l/crc.h>

#include <new>

#include FERRY_XXHASH_HEADER  // xxhash.h, or the one whose functions choose kernels at run time

namespace ferry {

std::string to_hex(const Digest& digest) {
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

Digest digest_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

struct DigestStream::State {
  State() : stream(XXH3_createState()) {
    if (!stream) throw std::bad_alloc();
    XXH3_128bits_reset(stream);
  }
  ~State() { XXH3_freeState(stream); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH3_state_t* stream;
};

DigestStream::DigestStream() : state_(std::make_unique<State>()) {}
DigestStream::~DigestStream() = default;
DigestStream::DigestStream(DigestStream&&) noexcept = default;
DigestStream& DigestStream::operator=(DigestStream&&) noexcept = default;

void DigestStream::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->stream, bytes.data(), bytes.size());
}

Digest DigestStream::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->stream);
  return {hash.high64, hash.low64};
}

uint32_t crc32(std::span<const std::byte> bytes, uint32_t before) {
  return crc32_gzip_refl(before, reinterpret_cast<const unsigned char*>(bytes.data()),
                         bytes.size());
}

}  // namespace ferry
