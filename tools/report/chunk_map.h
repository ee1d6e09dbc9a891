// Where the pieces of a tensor lie in its shape, as a drawing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"

namespace ferry::tool {

struct ChunkMap {
  /// A piece, or some that follow each other; position and size as parts of 1.
  struct Cell {
    double x = 0, y = 0, width = 1, height = 1;
    size_t first = 0, chunks = 1;  // of the entry's chunks
  };
  std::vector<Cell> cells;
  std::string cut;       // how the tensor is cut: "rows in 8, columns in 2"; empty: it is not
  bool to_scale = true;  // false: the cells show only the order of the pieces
  size_t rows = 1;       // of cells, about
};

/// Boxes that are cut along one or two axes are drawn where they lie in these; all else is a strip,
/// in which neighbours share a cell where there would be more than `most_cells`.
ChunkMap chunk_map(const Entry& entry, size_t most_cells);

}  // namespace ferry::tool
