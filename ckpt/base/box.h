// Shapes, boxes and shards of global tensors: pure integer geometry, in elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ferry {

/// One number an axis, outermost first. Scalars have none.
using Dims = std::vector<int64_t>;

/// Number of elements of a shape (1 for a scalar). corrupt when an extent is negative or the
/// product overflows, naming `what`.
int64_t element_count(const Dims& shape, std::string_view what);

/// Row-major strides of `shape`, in elements.
Dims row_major_strides(const Dims& shape);

/// "[4, 32]"
std::string to_string(const Dims& dims);

/// Part of a global tensor: [offset, offset + size) along each axis.
struct Box {
  Dims offset;
  Dims size;

  static Box whole(const Dims& shape) { return {Dims(shape.size(), 0), shape}; }
  bool operator==(const Box&) const = default;
};

/// True when `box` has as many axes as `shape` and is inside it.
bool is_inside(const Box& box, const Dims& shape) noexcept;

/// True when the two boxes, which have as many axes, share an element.
bool overlaps(const Box& a, const Box& b) noexcept;

/// What two boxes with as many axes share; its size is 0 along each axis on which they do not meet.
Box intersection(const Box& a, const Box& b);

/// "[0:2, 0:32]"
std::string to_string(const Box& box);

/// A part of a tensor, wherever it is. A chunk of a file is a shard with an extent
/// (core/catalog.h), a region of memory one with a pointer (memory/region.h), a rank's part of an
/// optimizer's buffer one with a place in a bucket (megatron/optimizer/buckets/model_buffers.h),
/// and a share of a plan's work one with the process that does it (core/plan_part.h).
///
/// A box of a tensor, or a run of elements of that box flattened in row-major order (an optimizer's
/// part that was cut in the middle of a row).
struct Shard {
  Box box;
  int64_t rank = 0;        // that holds it or is to write it, where that matters
  uint32_t tensor = 0;     // position in a list of tensors, unused if implied by the owner
  int64_t run_begin = 0;   // first element, in the flattened box
  int64_t run_count = -1;  // elements; -1: the whole box

  bool is_run() const noexcept { return run_count >= 0; }
  /// corrupt, naming `what`, when the box has more than fit in 64 bits.
  int64_t elements(std::string_view what) const;
  bool operator==(const Shard&) const = default;
};

/// "[0:2, 0:32]"; of a run "elements 5 to 17 of [0:2, 0:32]".
std::string to_string(const Shard& shard);

/// True when the box has the rank of `shape` and is inside it, and the run inside the box.
bool is_inside(const Shard& shard, const Dims& shape);

/// True when the two shards, of one tensor, share an element.
bool overlaps(const Shard& a, const Shard& b);

/// A box that some of a shard's elements fill.
struct FilledBox {
  Box box;
  int64_t first = 0;  // place of its first element among the shard's elements
};

/// The boxes that the elements of a shard fill: its box, or a few for a run. Inside a FilledBox
/// elements are row_major_strides(shard.box.size) apart among the shard's elements.
std::vector<FilledBox> filled_boxes(const Shard& shard);

/// Positions of two shards of one tensor that overlap; nothing when none do. Quick where boxes are
/// a grid, as shards of ranks are.
std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const Shard* const> shards);
std::optional<std::pair<size_t, size_t>> find_overlap(const std::vector<Box>& boxes);

}  // namespace ferry
