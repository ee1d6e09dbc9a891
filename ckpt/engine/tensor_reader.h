// Reads target tensors of a plan into memory, part by part, without files in between: what a recipe
// makes of other tensors can be inspected, or compressed, without being written.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/plan.h"
#include "ckpt/engine/source_files.h"
#include "ckpt/engine/tiles/tile.h"
#include "ckpt/engine/transfers/transfer.h"

namespace ferry {

/// Adds a tensor that is read, never written: a row-major chunk at byte 0 of a file that is none.
void add_read_tensor(Plan& plan, std::string name, DType dtype, const Dims& shape, Recipe recipe);

/// What the readers of one plan share: opened files, located chunks. The plan must outlive it.
struct TensorSource {
  /// Streams that `threads` readers meet are decoded into `stream_bytes` of memory (stream_memory()
  /// says how many are right) and into files of `spool`.
  TensorSource(const Plan& plan, uint64_t stream_bytes, int threads, SpoolPlace spool = {})
      : compiler(plan),
        files(*plan.source, std::move(spool), stream_bytes, threads),
        plan_files(plan.target.files.size()) {}

  PlanCompiler compiler;
  SourceFiles files;
  size_t plan_files;
};

/// One a thread. Holds buffers of some times the largest part that it read.
class TensorReader {
 public:
  explicit TensorReader(TensorSource& source);
  ~TensorReader();
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  /// Fills `into` with the elements of `part` of a chunk (raw, row-major) of a target entry: a box
  /// of cut_into_tiles() over the chunk's size, counted from the chunk's own corner. They are a run
  /// of the chunk's elements.
  void read(size_t entry, const Chunk& chunk, const Box& part, std::span<std::byte> into);

 private:
  class Target;

  TensorSource& source_;
  std::unique_ptr<Target> target_;
  std::vector<WritableFile*> files_;  // all the same
  TileRunner runner_;
};

}  // namespace ferry
