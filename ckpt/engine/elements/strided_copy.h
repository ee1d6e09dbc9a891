// Copies elements between two strided layouts in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckpt/base/dtype.h"

namespace ferry {

struct StridedLoop {
  int64_t count;
  int64_t in_stride;   // bytes; 0 repeats one element
  int64_t out_stride;  // bytes
};

/// For every index of the loops: out[...] = in[...], converted when the dtypes differ. `in` null
/// writes zeros. Blocks transpositions so that both sides stay in the cache.
void strided_copy(const std::byte* in, DType in_dtype, std::byte* out, DType out_dtype,
                  std::vector<StridedLoop> loops);

/// The same with `addend` added to every element, in double precision. Floating-point dtypes.
void strided_add(const std::byte* in, DType in_dtype, double addend, std::byte* out,
                 DType out_dtype, const std::vector<StridedLoop>& loops);

// Changes signs of elements in memory.

/// Flips the parts that `flips` names of every element that the loops reach by their target
/// strides.
void flip_signs(std::byte* out, int64_t element_bytes, SignFlips flips,
                const std::vector<StridedLoop>& loops);

}  // namespace ferry
