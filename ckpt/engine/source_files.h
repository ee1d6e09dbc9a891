// The files that transfers read from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ckpt/core/catalog.h"
#include "ckpt/engine/borrowed_sources.h"
#include "ckpt/engine/transfers/transfer.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Where zstd streams that are too large for memory are decoded to: a folder of a file system, or
/// that of the operating system for temporary files (TMPDIR). The files have no name from the
/// start.
struct SpoolPlace {
  const FileSystem* file_system = nullptr;
  std::string folder;
};

/// What decoded streams of a catalog get of a budget: 0 where it has none.
uint64_t stream_memory(const Catalog& catalog, uint64_t memory_bytes);
/// The same where no other entry is read.
uint64_t stream_memory(const Entry& entry, uint64_t memory_bytes);

/// Files of a source catalog, opened when first used, and decoded copies of zstd streams, which
/// cannot be read by position. Small ones are kept in memory. When those are too many they are
/// dropped, oldest first; one that is needed again goes to a file.
///
/// A stream is decoded to its end (but for what is larger than any end of an item), so that its
/// checksum is verified, however little of it is used.
class SourceFiles {
 public:
  /// `memory_bytes` hold the streams of `threads` threads. The catalog must outlive the object, and
  /// so must `borrowed`, which may be null.
  SourceFiles(const Catalog& catalog, SpoolPlace spool, uint64_t memory_bytes, int threads,
              const BorrowedSources* borrowed = nullptr);
  ~SourceFiles();

  /// The file that a transfer's in_offset counts in. Safe from several threads; decodes a stream
  /// when it meets it first. corrupt, with the tensor's name, when it is damaged.
  std::shared_ptr<const ReadableFile> get(const Transfer& transfer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ferry
