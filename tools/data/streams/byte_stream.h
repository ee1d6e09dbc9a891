// Bytes one after another: of files, of what cannot seek (pipes, standard input), and of what gzip,
// xz or zstd made of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ckpt/io/file_system.h"

namespace ferry::tool {

/// For one thread.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Fills `into`, or as much of it as there is; 0 bytes at the end alone.
  virtual size_t read_some(std::span<std::byte> into) = 0;
};

/// Bytes [begin, end) of a file, which must have them.
std::unique_ptr<ByteStream> file_stream(std::shared_ptr<const ReadableFile> file, uint64_t begin,
                                        uint64_t end);

/// A path that cannot seek (a FIFO, /dev/fd/63 of a shell's <(...)), or "-": standard input. While
/// it waits for bytes it polls `stop`: cancelled when that is set.
std::unique_ptr<ByteStream> pipe_stream(const std::string& path, const std::atomic<bool>* stop);

/// The same bytes; adds to `count` how many were read.
std::unique_ptr<ByteStream> counted(std::unique_ptr<ByteStream> stream,
                                    std::atomic<uint64_t>& count);

enum class Compression { none, gzip, xz, zstd, parquet };

/// By the first bytes of a file, of which six are enough. unsupported, naming `name`, for bzip2,
/// which is recognised to say what to do. Parquet counts among them, though it takes a file that
/// can seek (parquet_stream()).
Compression compression_of(std::span<const std::byte> first, const std::string& name);

/// What was compressed; the stream itself where nothing was. Several gzip members or zstd frames
/// one after another are one text. Errors name `name`: corrupt for damage and for an end in the
/// middle, unsupported for what this build cannot read.
std::unique_ptr<ByteStream> decompressed(std::unique_ptr<ByteStream> stream,
                                         const std::string& name);

}  // namespace ferry::tool
