// Tiles: the units of work of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/engine/items/sealer.h"
#include "ckpt/engine/tiles/buffer.h"
#include "ckpt/engine/transfers/side_buffer.h"
#include "ckpt/engine/transfers/transfer.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Where decoded streams are kept while a plan runs: files of a folder, removed from it as soon as
/// they are open, or memory when there is no file system: then the last ones, of at most so many
/// bytes together (one stream at least), and an older one is decoded again when it is met again.
struct SpoolPlace {
  const FileSystem* file_system = nullptr;
  std::string folder;
  uint64_t memory_bytes = uint64_t{256} << 20;
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
  /// Copies by `file_system` where it can (null: never), and shows what it writes to `sealer`
  /// (null: to none).
  TileRunner(SourceFiles& sources, std::span<WritableFile* const> targets,
             const FileSystem* file_system, Sealer* sealer);

  /// Bytes of target written.
  uint64_t run(const std::vector<Transfer>& transfers);

  /// One of its buffers, at least `bytes` large, for use until the next call of run().
  std::span<std::byte> scratch(uint64_t bytes) { return in_buffer_.take(bytes); }

 private:
  void copy_runs(const Transfer& transfer, size_t level, const ReadableFile& source,
                 uint64_t in_offset, uint64_t out_offset);
  void write(uint32_t file, uint64_t offset, std::span<const std::byte> bytes);
  void gather(const std::vector<Transfer>& transfers, const SideBuffer& out, std::byte* to);
  void gather_together(const std::vector<Transfer>& transfers, const Span& span,
                       const SideBuffer& out, std::byte* to);
  void gather_runs(const Transfer& transfer, const BufferView& out, std::byte* to);
  void gather_strips(Transfer transfer, const BufferView& out, std::byte* to);

  SourceFiles& sources_;
  std::span<WritableFile* const> targets_;
  const FileSystem* file_system_;
  Sealer* sealer_;
  Buffer in_buffer_;
  Buffer out_buffer_;
};

/// Reads and writes that it takes to run transfers as one tile.
uint64_t calls_of(const std::vector<Transfer>& transfers);

}  // namespace ferry
