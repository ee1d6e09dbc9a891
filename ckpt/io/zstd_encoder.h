// Compresses bytes that come in pieces into zstd frames, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

struct ZSTD_CCtx_s;

namespace ferry {

inline constexpr int kDefaultZstdLevel = 3;
inline constexpr int kLeastZstdLevel = 1;
inline constexpr int kMostZstdLevel = 19;  // above, decoders need windows that they may refuse

/// One thread at a time. The same bytes at the same level give the same frame, however they are cut
/// into pieces.
class ZstdEncoder {
 public:
  explicit ZstdEncoder(int level);
  ~ZstdEncoder();
  ZstdEncoder(const ZstdEncoder&) = delete;
  ZstdEncoder& operator=(const ZstdEncoder&) = delete;

  /// Begins a frame of exactly `bytes` bytes, with that size and a checksum of them in it.
  void begin(uint64_t bytes);
  /// Appends to `to` what the next bytes give; at the frame's last byte all that is left.
  void add(std::span<const std::byte> bytes, std::string& to);

  /// Memory of an encoder of this level at work, besides what it appends to.
  static uint64_t memory_bytes(int level);

 private:
  ZSTD_CCtx_s* context_;
  uint64_t bytes_left_ = 0;  // of the frame
};

}  // namespace ferry
