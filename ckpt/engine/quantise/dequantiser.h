// Reads values of quantised tensors.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "ckpt/engine/elements/decode.h"
#include "ckpt/engine/memory_files.h"
#include "ckpt/engine/tiles/buffer.h"
#include "ckpt/engine/transfers/side_buffer.h"
#include "ckpt/engine/transfers/transfer.h"

namespace ferry {

class SourceFiles;
class TileRunner;

/// Reads codes and scales of a part that stays in a core's cache, makes values of them, reads the
/// next. Holds its buffers between transfers. One a thread.
class Dequantiser {
 public:
  /// Moves the elements of a transfer that is in memory on both sides.
  using MoveElements = void (*)(const Transfer&, const std::byte* in,
                                const std::vector<int64_t>& in_strides, std::byte* out,
                                const std::vector<int64_t>& out_strides);

  Dequantiser(SourceFiles& sources, MoveElements move_elements);
  ~Dequantiser();

  /// Puts the values of a transfer that has a QuantisedMove to their places, as what the transfer
  /// says; `strides` are those of its loops there.
  void gather(const Transfer& transfer, std::byte* to, const std::vector<int64_t>& strides);

 private:
  class Strip;

  void gather(const Transfer& transfer, const Move& move, std::byte* to,
              const std::vector<int64_t>& strides);
  std::span<std::byte> read(PlanCompiler& compiler, const Entry& part, const Box& box, DType dtype,
                            Buffer& buffer);
  std::vector<float> read_scales(PlanCompiler& compiler, const Entry& part, const Box& box);
  std::vector<float> read_zeros(const QuantisedMove& from, const Box& blocks, const Dims& grid);

  SourceFiles& sources_;
  MoveElements move_elements_;
  std::array<WritableFile*, 1> memory_{};
  std::unique_ptr<TileRunner> runner_;
  Buffer codes_, others_, values_;
};

/// About how many reads a transfer of values takes.
uint64_t calls_of_values(const Transfer& transfer);

}  // namespace ferry
