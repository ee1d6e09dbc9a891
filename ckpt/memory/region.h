// Memory of the caller: tensors, and parts of tensors, in it, and how it is copied aside before it
// is saved or filled when it is loaded, on the host here, by other implementations of Stager on a
// device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"

namespace ferry {

/// A shard in memory. Its elements, those of a box in row-major order or of a run, are contiguous
/// and little-endian; the memory stays the caller's, who says how long it is used.
template <typename Byte>
struct BasicRegion {
  std::string name;  // of the tensor
  DType dtype = DType::f32;
  Dims shape;            // of the whole tensor, in elements
  Shard shard;           // which part of it is here; its tensor and rank are not used
  Byte* data = nullptr;  // of the shard's elements; may be null when there are none
  /// Which half of the tensor's fp32 elements is here (dtype.h): upper as bf16, lower as i16. A
  /// save may be given the lower halves of an optimizer's `param` state, together with the bf16
  /// tensor of the model that has the upper ones.
  FloatHalf half = FloatHalf::whole;
};

using Region = BasicRegion<std::byte>;             // to load into
using ConstRegion = BasicRegion<const std::byte>;  // to save from

/// A region that holds all of its tensor. `data` points at elements of any type.
inline Region whole_region(std::string name, DType dtype, const Dims& shape, void* data) {
  return {std::move(name), dtype, shape, {Box::whole(shape)}, static_cast<std::byte*>(data)};
}
inline ConstRegion whole_region(std::string name, DType dtype, const Dims& shape,
                                const void* data) {
  return {std::move(name), dtype, shape, {Box::whole(shape)}, static_cast<const std::byte*>(data)};
}

/// Bytes of a region. invalid, naming the tensor, when its shard is not inside its shape, when
/// there are elements and no data, or when the size does not fit in 64 bits.
template <typename Byte>
uint64_t checked_bytes(const BasicRegion<Byte>& region);

extern template uint64_t checked_bytes(const Region&);
extern template uint64_t checked_bytes(const ConstRegion&);

/// Where copies begin in staging memory: at cache lines.
constexpr uint64_t kStagedAlignmentBytes = 64;

/// Memory that a Stager gave; it goes with its last owner.
struct StagingMemory {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

/// Bytes to copy into staging memory, or out of it.
struct StagingCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint64_t bytes = 0;
};

/// Called by an AsyncSaver: now() by the thread that saves, the others by its own threads, which
/// may copy for two snapshots at once. Several savers may share one: all but now() has to be safe
/// from several threads.
class Stager {
 public:
  virtual ~Stager() = default;

  /// At least `bytes` bytes that the host can read, aligned to cache lines. exhausted when there
  /// are none. Pays the cost of committing the pages here, or at the first write.
  virtual StagingMemory allocate(uint64_t bytes) = 0;

  /// Where the caller's work is: a device may still be at what was asked of it before. Returns
  /// soon.
  virtual std::shared_ptr<void> now() { return nullptr; }

  /// Copies what the memory held at the moment that now() gave; returns when all is copied.
  /// Meanwhile the caller's work goes on.
  virtual void copy(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment) = 0;

  /// The same for memory that the caller's work is to change soon. `due` gives the moment (now())
  /// at which it does, once that is known; `release` is called once when it may: what is not copied
  /// by then may be put elsewhere first, where that is quicker.
  virtual void copy_overlapped(std::span<const StagingCopy> copies,
                               const std::shared_ptr<void>& moment,
                               const std::function<std::shared_ptr<void>()>& due,
                               const std::function<void()>& release) {
    static_cast<void>(due);
    copy(copies, moment);
    release();
  }

  /// Begins to copy from staging memory to places that the caller's work so far no longer uses. The
  /// returned function waits until all is there; call it before either side is used or freed.
  [[nodiscard]] virtual std::function<void()> place(std::span<const StagingCopy> copies) {
    for (const StagingCopy& one : copies) std::memcpy(one.to, one.from, one.bytes);
    return [] {};
  }
};

/// Host memory to host memory, by several threads (0: one for each core, at most 64), which take no
/// signals.
std::shared_ptr<Stager> host_stager(int threads = 0);

}  // namespace ferry
