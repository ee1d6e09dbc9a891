#include "ckpt/engine/tiles/tile_cut.h"

#include <algorithm>
#include <utility>

#include "ckpt/engine/tiles/tile.h"

namespace ferry {
namespace {

// The smallest tile stays in a core's cache while it is read, moved and written; each next size is
// four times as large.
constexpr int64_t kFirstTileBytes = 1 << 20;
constexpr int64_t kGrowth = 4;
// Reads and writes of this many bytes on average are long enough.
constexpr int64_t kLongRunBytes = 8 << 10;
// Rows of the target that are cut are not cut shorter.
constexpr int64_t kColumnBytes[] = {16 << 10, 8 << 10, 4 << 10};

std::vector<Box> cut_rows(const Dims& shape, int64_t max_elements) {
  std::vector<Box> tiles;
  std::vector<std::pair<Box, size_t>> work{{Box::whole(shape), 0}};
  while (!work.empty()) {
    auto [box, axis] = std::move(work.back());
    work.pop_back();
    int64_t count = 1;
    for (int64_t extent : box.size) count *= extent;
    while (axis < shape.size() && box.size[axis] <= 1) ++axis;
    if (count <= max_elements || axis == shape.size()) {
      tiles.push_back(std::move(box));
      continue;
    }
    const int64_t inner = count / box.size[axis];
    const int64_t rows = std::max<int64_t>(1, max_elements / inner);
    const int64_t begin = box.offset[axis], end = begin + box.size[axis];
    // Backwards onto the stack, so that tiles come out in order.
    for (int64_t at = begin + (end - begin - 1) / rows * rows; at >= begin; at -= rows) {
      Box part = box;
      part.offset[axis] = at;
      part.size[axis] = std::min(rows, end - at);
      work.emplace_back(std::move(part), rows > 1 ? shape.size() : axis + 1);
    }
  }
  return tiles;
}

}  // namespace

std::vector<Box> cut_into_tiles(const Dims& shape, int64_t max_elements, int64_t max_columns) {
  if (shape.empty() || shape.back() <= max_columns) return cut_rows(shape, max_elements);
  Dims narrow = shape;
  narrow.back() = max_columns;
  std::vector<Box> tiles;
  for (const Box& tile : cut_rows(narrow, max_elements)) {
    for (int64_t at = 0; at < shape.back(); at += max_columns) {
      Box part = tile;
      part.offset.back() += at;
      part.size.back() = std::min(part.size.back(), shape.back() - part.offset.back());
      if (part.size.back() > 0) tiles.push_back(std::move(part));
    }
  }
  return tiles;
}

std::vector<Box> choose_tiles(const Dims& shape, DType dtype, int64_t max_elements,
                              const std::function<std::vector<Transfer>(const Box&)>& compile) {
  const int64_t element_bytes = size_bytes(dtype);
  const auto bytes_a_call = [&](const Box& tile) {
    const std::vector<Transfer> transfers = compile(tile);
    uint64_t bytes = 0;
    for (const Transfer& transfer : transfers) bytes += 2 * transfer.out_bytes();
    return static_cast<int64_t>(bytes / std::max<uint64_t>(1, calls_of(transfers)));
  };
  std::vector<Box> best;
  int64_t best_bytes = -1, smaller_bytes = 0;
  for (int64_t tile_bytes = kFirstTileBytes;; tile_bytes *= kGrowth) {
    const int64_t elements = std::clamp<int64_t>(tile_bytes / element_bytes, 1, max_elements);
    std::vector<Box> tiles = cut_into_tiles(shape, elements);
    const bool is_whole = tiles.size() <= 1;
    if (is_whole && tile_bytes == kFirstTileBytes) return tiles;
    const int64_t bytes = bytes_a_call(tiles[0]);
    if (bytes > best_bytes) best = std::move(tiles), best_bytes = bytes;
    if (best_bytes >= kLongRunBytes || is_whole) return best;
    // Where larger tiles make no longer runs, narrower ones do not either.
    if (smaller_bytes > 0 && bytes < smaller_bytes + smaller_bytes / 2) return best;
    smaller_bytes = bytes;
    for (int64_t column_bytes : kColumnBytes) {
      if (column_bytes / element_bytes >= shape.back()) continue;
      tiles = cut_into_tiles(shape, elements, column_bytes / element_bytes);
      const int64_t narrow_bytes = bytes_a_call(tiles[0]);
      if (narrow_bytes > best_bytes) best = std::move(tiles), best_bytes = narrow_bytes;
    }
    if (best_bytes >= kLongRunBytes || elements == max_elements) return best;
  }
}

namespace {

// The smallest box that holds some chunks, and their place in the flattened tensor.
struct Cover {
  Slab slab;
  int64_t begin = 0, end = 0;
  int64_t elements = 0;  // of the chunks
};

Cover cover_of(const Entry& entry, size_t chunk, const Dims& strides) {
  const Chunk& only = entry.chunks[chunk];
  Cover cover{{only.box, chunk}, 0, 1, only.elements(entry.name)};
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    cover.begin += only.box.offset[axis] * strides[axis];
    cover.end += (only.box.offset[axis] + only.box.size[axis] - 1) * strides[axis];
  }
  return cover;
}

void join(Cover& cover, const Cover& next) {
  Box& box = cover.slab.box;
  for (size_t axis = 0; axis < box.size.size(); ++axis) {
    const Box& other = next.slab.box;
    const int64_t begin = std::min(box.offset[axis], other.offset[axis]);
    const int64_t end =
        std::max(box.offset[axis] + box.size[axis], other.offset[axis] + other.size[axis]);
    box.offset[axis] = begin;
    box.size[axis] = end - begin;
  }
  cover.end = std::max(cover.end, next.end);
  cover.elements += next.elements;
}

bool is_in_one_file(const Entry& entry) {
  return std::all_of(entry.chunks.begin(), entry.chunks.end(), [&](const Chunk& chunk) {
    return chunk.extent.file == entry.chunks[0].extent.file;
  });
}

}  // namespace

std::vector<Slab> slabs_of(const Entry& entry) {
  const std::vector<Slab> whole{{Box::whole(entry.shape), 0}};
  if (is_in_one_file(entry)) return whole;
  const Dims strides = row_major_strides(entry.shape);
  std::vector<Cover> covers;
  for (size_t i = 0; i < entry.chunks.size(); ++i) {
    Cover cover = cover_of(entry, i, strides);
    if (cover.elements > 0) covers.push_back(std::move(cover));
  }
  std::stable_sort(covers.begin(), covers.end(),
                   [](const Cover& a, const Cover& b) { return a.begin < b.begin; });
  std::vector<Cover> joined;
  for (Cover& cover : covers) {
    if (!joined.empty() && cover.begin < joined.back().end) {
      join(joined.back(), cover);
    } else {
      joined.push_back(std::move(cover));
    }
  }
  std::vector<Slab> slabs;
  for (Cover& cover : joined) {
    // More than the chunks': a box that others have elements in.
    if (element_count(cover.slab.box.size, entry.name) != cover.elements) return whole;
    slabs.push_back(std::move(cover.slab));
  }
  return slabs.empty() ? whole : slabs;
}

}  // namespace ferry
