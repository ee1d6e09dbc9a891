// Reads tensors of a checkpoint, or parts of them, into memory.
//
//   const Checkpoint checkpoint = open_checkpoint(posix_file_system(), "runs/a");
//   std::vector<float> bias(4096), rows(1000 * 4096);
//   std::vector<Region> regions{whole_region("bias", DType::f32, {4096}, bias.data())};
//   regions.push_back({"weight", DType::f32, {50000, 4096}, {{{2000, 0}, {1000, 4096}}},
//                      reinterpret_cast<std::byte*>(rows.data())});  // rows 2000 to 2999
//   load(checkpoint, regions);
//
// Whatever the format, and whatever layout saved it: a region may cross the chunks of many ranks.
// Bytes go straight to their places where they are contiguous in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"
#include "ckpt/io/file_system.h"
#include "ckpt/memory/region.h"

namespace ferry {

/// A tensor in memory, row-major and little-endian, and what owns the memory.
struct OwnedTensor {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  std::span<std::byte> bytes;  // valid as long as `owner` or a copy of it
  std::shared_ptr<void> owner;
};

/// Named tensors that can be read: those of a checkpoint as they are stored, or others that are
/// made from them as they are read (ModelView, ops/convert.h). Copies refer to the same tensors,
/// and outlive the checkpoint. Safe from several threads.
class TensorSet {
 public:
  /// corrupt when two tensors have one name.
  TensorSet(const Checkpoint& checkpoint);  // NOLINT: its tensors

  /// In the order of the checkpoint or the model. Those that are made as they are read have no
  /// chunks.
  std::span<const Entry> tensors() const noexcept;
  const Entry* find(std::string_view name) const;  // null when absent

  /// The tensor without a copy, where all of it is one row-major run of uncompressed elements in a
  /// local file, at a multiple of their size. Else, and where the system does not map the file:
  /// nothing. The memory may be written to, which changes neither the file nor what other processes
  /// see; whoever maps the same tensor of this set or of a copy of it shares it. It needs no open
  /// file and stays when the file is removed, but a file must not be cut short meanwhile.
  /// not_found when there is no such tensor; otherwise as load().
  std::optional<OwnedTensor> map(std::string_view name) const;

  // For ferry's own parts.
  class State;  // ckpt/memory/tensor_set.h
  explicit TensorSet(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

/// Fills all regions, which must not overlap in memory; the same elements may be asked for many
/// times. Where a region's dtype is not the tensor's, values are rounded once, to
/// nearest even. Several threads may load from one set at once.
///
/// not_found for a tensor that is not there; mismatch when it has another shape, or no way leads to
/// the region's dtype; invalid for a region that is none (checked_bytes); unsupported for a part or
/// another dtype of a tensor that is quantised as it is read, which is read whole; busy when the
/// checkpoint was replaced meanwhile; corrupt and io as open_checkpoint. After an error the regions
/// hold anything. Besides the regions it takes `options.memory_bytes`; zstd streams that are too
/// large for them are decoded into files without names of the folder for temporary files (TMPDIR).
void load(const TensorSet& tensors, std::span<const Region> regions,
          const EngineOptions& options = {});

struct StreamOptions {
  std::optional<std::vector<std::string>> names = {};  // and their order; nothing: all
  /// The tensors are shared out over so many ranks: each is read by one, whole, and all have about
  /// the same number of bytes. The same names and sizes give the same shares.
  int64_t rank = 0, ranks = 1;
  /// `memory_bytes` holds what is read ahead, the last two tensors that were returned as long as
  /// they are kept (a loop's variable holds one while the next is asked for), freed buffers that
  /// are used again, and the engine's own. Older tensors that are kept are the caller's memory. A
  /// caller who waits for a tensor gets it whatever it keeps: no stream waits for memory of the
  /// caller's.
  EngineOptions engine = {.memory_bytes = uint64_t{2} << 30};
};

/// Tensors one by one, in bounded memory, read ahead by a thread of its own:
///
///   TensorStream stream(checkpoint);
///   while (const std::optional<OwnedTensor> tensor = stream.next()) send(*tensor);
///
/// Threads of the engine read the next tensors together, in their order.
class TensorStream {
 public:
  /// Begins to read. not_found for a name that is not there; exhausted, with both figures, when a
  /// tensor does not fit into the memory; invalid for a rank that is none.
  explicit TensorStream(TensorSet tensors, StreamOptions options = {});
  /// Stops soon. Tensors that were returned stay.
  ~TensorStream();
  TensorStream(const TensorStream&) = delete;
  TensorStream& operator=(const TensorStream&) = delete;

  /// The tensors of this rank, in the order of next().
  std::span<const Entry* const> tensors() const noexcept;

  /// The next tensor, whose memory is the caller's for as long as it is kept; nothing after the
  /// last. Waits until it is read. Throws what load() throws, and the same again when called again;
  /// cancelled when `options.engine.cancel` is set. One thread at a time.
  std::optional<OwnedTensor> next();

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// Rank 0 opens the checkpoint and gives all ranks of the group what it found; the others touch no
/// file before they read from it. All must see the same file system. What open_checkpoint() throws
/// on rank 0, all throw alike.
///
/// Rank 0's catalog holds the locks that keep other processes from removing the checkpoint, and so
/// must live as long as any rank reads. On the others those, `notes` and `damage` are empty.
Checkpoint open_together(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                         Group& group, const OpenOptions& options = {});

}  // namespace ferry
