// What the decoders share: compressed bytes in a buffer.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/data/streams/byte_stream.h"

namespace ferry::tool {

class DecoderInput {
 public:
  explicit DecoderInput(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {}

  /// The next bytes; none at the end alone.
  std::span<const std::byte> next() {
    buffer_.resize(kBytes);
    return std::span<const std::byte>(buffer_).first(stream_->read_some(buffer_));
  }

 private:
  static constexpr size_t kBytes = 128 << 10;
  std::unique_ptr<ByteStream> stream_;
  std::vector<std::byte> buffer_;
};

std::unique_ptr<ByteStream> gzip_stream(std::unique_ptr<ByteStream> stream, std::string name);
std::unique_ptr<ByteStream> zstd_stream(std::unique_ptr<ByteStream> stream, std::string name);
/// unsupported where ferry was built without liblzma.
std::unique_ptr<ByteStream> xz_stream(std::unique_ptr<ByteStream> stream, std::string name);

/// corrupt: `name` ends in the middle of what was compressed.
[[noreturn]] void fail_short(const std::string& name, const char* format);

/// corrupt: other bytes follow the end of the compressed data in `name`.
[[noreturn]] void fail_trailing(const std::string& name, const char* format);

}  // namespace ferry::tool
