// Sequential decoding of a zstd-compressed run of a file, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ckpt/io/file_system.h"

namespace ferry {

/// After the elements that were asked for, readers decode the rest of a stream (of its archive) up
/// to this length to reach its checksum: a small file can hold any number of zeros. Verification
/// decodes all of it.
constexpr uint64_t kMostStreamTailBytes = 64 << 20;

/// One thread at a time. Holds about 256 KiB and the stream's window (at most 128 MiB, as large as
/// the stream asks for).
class ZstdStream {
 public:
  /// Decodes the stream (one or more frames) in [offset, offset + length) of `file`. corrupt when
  /// the run leaves the file.
  ZstdStream(std::shared_ptr<const ReadableFile> file, uint64_t offset, uint64_t length);
  ~ZstdStream();
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  /// Fills `into` with the next decoded bytes. corrupt when the stream is damaged or ends before;
  /// unsupported when it needs a larger window.
  void read(std::span<std::byte> into);
  /// Fills as much of `into` as there is; 0 only at the end of the stream.
  size_t read_some(std::span<std::byte> into);
  /// Passes over decoded bytes. Costs as much as reading them.
  void skip(uint64_t bytes);

  /// Passes over what is left, to meet the checksum there; but over no more than so many decoded
  /// bytes. corrupt when it shows damage.
  void check_to_end(uint64_t most);

  /// Decoded bytes read or skipped so far.
  uint64_t position() const noexcept { return position_; }

 private:
  struct Decoder;

  bool refill();  // false when the compressed bytes are used up

  std::shared_ptr<const ReadableFile> file_;
  uint64_t next_;  // compressed bytes not yet in the buffer: [next_, end_) of the file
  uint64_t end_;
  uint64_t position_ = 0;
  bool between_frames_ = true;
  std::string what_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace ferry
