// Tiles of tensors that are quantised as they are written.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ckpt/engine/items/item_digester.h"
#include "ckpt/engine/memory_files.h"
#include "ckpt/engine/quantise/encode.h"
#include "ckpt/engine/source_files.h"
#include "ckpt/engine/tiles/buffer.h"
#include "ckpt/engine/tiles/tile.h"
#include "ckpt/engine/transfers/transfer.h"

namespace ferry {

struct EngineOptions;

/// Boxes of whole blocks that a shape is cut into, in row-major order: of at most `max_elements`
/// elements, or one block.
std::vector<Box> cut_into_blocks(const Dims& shape, const Dims& block, int64_t max_elements);

/// What tiles of a tensor that is quantised are made of: blocks, or rows of them that fill elements
/// of the target.
Dims tile_unit(const Quantise& how);

/// The greatest magnitude of each group of weights that has one second scale, or one scale in all,
/// by Quantise::together. Reads these weights once.
std::map<uint32_t, float> largest_magnitudes(const Plan& plan, PlanCompiler& compiler,
                                             SourceFiles& sources, int threads,
                                             uint64_t bytes_per_thread,
                                             const EngineOptions& options);

/// Brings a tile's values into memory, quantises them block by block, and writes the entry's codes
/// and what belongs to them. One a thread.
class QuantisingRunner {
 public:
  QuantisingRunner(const Plan& plan, PlanCompiler& compiler, SourceFiles& sources,
                   std::span<WritableFile* const> targets, ItemDigester& digester,
                   const std::map<uint32_t, float>& largest);

  /// `box`: of cut_into_blocks(). Returns what was written, as transfers from nowhere.
  std::vector<Transfer> run(size_t entry, const Box& box);

 private:
  void gather(size_t entry, const Box& box, DType values);
  void quantise(const Box& box, const Quantise& how, int64_t pitch, Encoder& encoder);
  void add_zeros(int64_t block_row, int64_t blocks, int64_t first, int64_t count);
  Transfer write(size_t position, const Box& box, int64_t columns,
                 std::span<const std::byte> bytes);

  const Plan& plan_;
  PlanCompiler& compiler_;
  std::span<WritableFile* const> targets_;
  ItemDigester& digester_;
  const std::map<uint32_t, float>& largest_;
  std::array<WritableFile*, 1> memory_{};
  TileRunner gatherer_;
  Buffer values_, codes_buffer_;
  std::span<std::byte> tile_, codes_;
  std::vector<uint8_t> row_zeros_;
  std::vector<std::byte> scales_, zeros_;
};

}  // namespace ferry
