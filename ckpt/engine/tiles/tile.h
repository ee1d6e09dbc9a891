// Tiles: the units of work of the engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ckpt/engine/items/item_digester.h"
#include "ckpt/engine/quantise/dequantiser.h"
#include "ckpt/engine/source_files.h"
#include "ckpt/engine/tiles/buffer.h"
#include "ckpt/engine/transfers/side_buffer.h"
#include "ckpt/engine/transfers/transfer.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Reads, rearranges and writes the transfers of one tile. Holds its buffers between tiles.
class TileRunner {
 public:
  /// Copies by `file_system` where it can (null: never), and shows what it writes to `digester`
  /// (null: to none).
  TileRunner(SourceFiles& sources, std::span<WritableFile* const> targets,
             const FileSystem* file_system, ItemDigester* digester);

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
  void gather_strips(Transfer transfer, const BufferView& out, std::byte* to,
                     bool are_remainders = false);

  SourceFiles& sources_;
  std::span<WritableFile* const> targets_;
  const FileSystem* file_system_;
  ItemDigester* digester_;
  Buffer in_buffer_;
  Buffer out_buffer_;
  Dequantiser dequantiser_;
};

/// Reads and writes that it takes to run transfers as one tile.
uint64_t calls_of(const std::vector<Transfer>& transfers);

}  // namespace ferry
