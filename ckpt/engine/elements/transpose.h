// Transposition of a matrix in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry {

struct Matrix {
  int64_t rows;
  int64_t columns;
};

/// The element at (row, column) of `in`, of the given shape and with rows `in_pitch` bytes apart,
/// goes to (column, row) of `out`, with rows `out_pitch` bytes apart. Elements have 1, 2, 4, 8 or
/// 16 bytes. The two must not overlap. Fastest where `in` is in the cache and rows of `out` are
/// 64-byte aligned; a large `out` is written past the cache.
void transpose(const std::byte* in, int64_t in_pitch, std::byte* out, int64_t out_pitch,
               Matrix shape, int64_t element_bytes);

}  // namespace ferry
