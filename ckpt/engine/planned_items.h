// The bytes of a plan's items, from front to back, without files in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ckpt/core/plan.h"
#include "ckpt/engine/tensor_reader.h"
#include "ckpt/engine/tiles/buffer.h"

namespace ferry {

/// What each item of a plan is made of. The plan must outlive it and stay unchanged.
class PlannedItems {
 public:
  /// A literal, or a chunk of a tensor.
  struct Part {
    uint64_t offset = 0;  // in the file
    const Literal* literal = nullptr;
    uint32_t entry = 0;
    const Chunk* chunk = nullptr;  // of the target entry
  };

  explicit PlannedItems(const Plan& plan);

  const Plan& plan() const noexcept { return plan_; }
  /// By rising offsets; they tile the item.
  std::span<const Part> parts(uint32_t item) const { return parts_[item]; }

 private:
  const Plan& plan_;
  std::vector<std::vector<Part>> parts_;
};

/// One a thread. Holds buffers of some times `part_bytes`.
class PlannedItemReader {
 public:
  using Consume = std::function<void(std::span<const std::byte>)>;

  PlannedItemReader(const PlannedItems& items, TensorSource& source, uint64_t part_bytes);

  /// Calls `consume` with all bytes of an item in their order, at most `part_bytes` at once (an
  /// element at least), CRC-32s in their places.
  void read(uint32_t item, const Consume& consume);

 private:
  using Pass = std::function<void(std::span<std::byte>)>;

  void read_literal(const Literal& literal, const Pass& pass);
  void read_chunk(const PlannedItems::Part& part, const Pass& pass);

  const PlannedItems& items_;
  uint64_t part_bytes_;
  TensorReader reader_;
  Buffer buffer_;
};

}  // namespace ferry
