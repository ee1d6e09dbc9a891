#include "ckpt/engine/tiles/tile_cut.h"

#include <algorithm>

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

}  // namespace ferry
