// Tensors, and parts of tensors, in memory of the caller.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "ckpt/base/dtype.h"
#include "ckpt/core/recipe.h"
#include "ckpt/core/shard.h"

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
  /// Which half of the tensor's fp32 elements is here (recipe.h): upper as bf16, lower as i16. A
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

}  // namespace ferry
