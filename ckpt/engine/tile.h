// Tiles: the units of work of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/engine/transfer.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Cuts a tensor's index space into boxes of at most `max_elements` elements, along the outer axes
/// first, in row-major order. At least one; a single element is never cut.
std::vector<Box> cut_into_tiles(const Dims& shape, int64_t max_elements);

/// Where decoded streams are kept while a plan runs: files of a folder, removed from it as soon as
/// they are open, or memory when there is no file system.
struct SpoolPlace {
  const FileSystem* file_system = nullptr;
  std::string folder;
};

/// Where transfers read from: files of the source catalog, opened when first used, and decoded
/// copies of zstd streams, which cannot be read by position.
class SourceFiles {
 public:
  SourceFiles(const Catalog& catalog, SpoolPlace spool);
  ~SourceFiles();
  /// The file that a transfer's in_offset counts in. Safe from several threads; decodes a stream
  /// when it meets it first.
  std::shared_ptr<const ReadableFile> get(const Transfer& transfer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Reads, rearranges and writes the transfers of one tile. Holds its buffers between tiles.
class TileRunner {
 public:
  TileRunner(SourceFiles& sources, std::span<WritableFile* const> targets,
             const FileSystem* file_system);

  /// Bytes of target written.
  uint64_t run(const std::vector<Transfer>& transfers);

  /// One of its buffers, made at least `bytes` large, for use until the next call of run().
  std::span<std::byte> scratch(uint64_t bytes);

 private:
  void copy_runs(const Transfer& transfer, size_t level, const ReadableFile& source,
                 uint64_t in_offset, uint64_t out_offset);
  void move_elements(const std::vector<Transfer>& transfers);

  SourceFiles& sources_;
  std::span<WritableFile* const> targets_;
  const FileSystem* file_system_;  // for copies by the kernel; null: none
  std::vector<std::byte> in_buffer_;
  std::vector<std::byte> out_buffer_;
};

/// Shortest run of bytes that touches on the source or target side when transfers run as one tile.
/// Tells whether larger tiles would make larger reads.
uint64_t shortest_run_bytes(const std::vector<Transfer>& transfers);

}  // namespace ferry
