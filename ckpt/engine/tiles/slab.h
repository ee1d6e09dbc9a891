// Parts of a target tensor in different files, for threads that each write to one file.
#pragma once

#include <cstddef>
#include <vector>

#include "ckpt/core/catalog.h"

namespace ferry {

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
