// Cuts a tensor into tiles, the units of work of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/engine/transfers/transfer.h"

namespace ferry {

/// Cuts a tensor's index space into boxes of at most `max_elements` elements and at most
/// `max_columns` along the last axis, along the outer axes first, in row-major order. At least one;
/// a single element is never cut.
std::vector<Box> cut_into_tiles(const Dims& shape, int64_t max_elements,
                                int64_t max_columns = INT64_MAX);

/// Tiles of at most `max_elements` elements and no larger than it takes for long reads and writes:
/// a small tile stays in a core's cache, but that of a transposition reads runs as long as it is
/// high and that of a split of rows as long as it is wide. `compile` gives the transfers of a box.
std::vector<Box> choose_tiles(const Dims& shape, DType dtype, int64_t max_elements,
                              const std::function<std::vector<Transfer>(const Box&)>& compile);

// Parts of a target tensor in different files, for threads that each write to one file.

/// A box of an entry that holds some of its chunks whole, and nothing of the others.
struct Slab {
  Box box;
  size_t first_chunk = 0;  // position in the entry, of the chunk with the first element
};

/// Cuts an entry into slabs, in row-major order: one for each chunk, or for chunks that share rows
/// (the columns of a tensor for several ranks), so that a slab's rows are read whole. One slab
/// where all chunks are in one file, or where boxes cannot separate them.
std::vector<Slab> slabs_of(const Entry& entry);

}  // namespace ferry
