// Tiles of tensors that are quantised as they are written.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ckpt/engine/items/item_digester.h"
#include "ckpt/engine/memory_files.h"
#include "ckpt/engine/quantise/quantise_block.h"
#include "ckpt/engine/source_files.h"
#include "ckpt/engine/tiles/buffer.h"
#include "ckpt/engine/tiles/tile.h"
#include "ckpt/engine/transfers/transfer.h"

namespace ferry {

/// Boxes of whole blocks that an entry is cut into, in row-major order: of at most `max_elements`
/// elements, or one block.
std::vector<Box> cut_into_blocks(const Dims& shape, const Dims& block, int64_t max_elements);

/// Brings a tile's values into memory, quantises them block by block, and writes both the entry's
/// bytes and its scales. One a thread.
class QuantisingRunner {
 public:
  QuantisingRunner(const Plan& plan, PlanCompiler& compiler, SourceFiles& sources,
                   std::span<WritableFile* const> targets, ItemDigester& digester);

  /// `box`: of cut_into_blocks(). Returns what was written, as transfers from nowhere.
  std::vector<Transfer> run(size_t entry, const Box& box);

 private:
  void gather(size_t entry, const Box& box, DType values);
  void quantise(const Box& box, const Quantise& how);
  Transfer write(size_t entry, const Box& box, std::span<const std::byte> bytes);

  const Plan& plan_;
  PlanCompiler& compiler_;
  std::span<WritableFile* const> targets_;
  ItemDigester& digester_;
  std::array<WritableFile*, 1> memory_{};
  TileRunner gatherer_;
  Buffer values_, bytes_;
  std::span<std::byte> tile_, quantised_;
  std::vector<float> scales_;
};

}  // namespace ferry
