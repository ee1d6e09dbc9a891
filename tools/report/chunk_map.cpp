#include "tools/report/chunk_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

struct Axis {
  size_t number = 0;
  size_t parts = 0;
};

std::vector<Axis> cut_axes(const Entry& entry) {
  std::vector<Axis> axes;
  for (size_t axis = 0; axis < entry.shape.size(); ++axis) {
    std::set<int64_t> offsets;
    for (const Chunk& chunk : entry.chunks) offsets.insert(chunk.box.offset[axis]);
    if (offsets.size() > 1) axes.push_back({axis, offsets.size()});
  }
  return axes;
}

std::string cut_text(const Entry& entry, const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis& axis : axes) {
    const bool matrix = entry.shape.size() == 2;
    const std::string what =
        matrix ? (axis.number == 0 ? "rows" : "columns") : fmt::format("axis {}", axis.number);
    text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", what, axis.parts);
  }
  return text;
}

// Offset and size along an axis, as parts of 1.
std::pair<double, double> part_of(const Entry& entry, const Chunk& chunk, size_t axis) {
  const auto whole = static_cast<double>(std::max<int64_t>(entry.shape[axis], 1));
  return {static_cast<double>(chunk.box.offset[axis]) / whole,
          static_cast<double>(chunk.box.size[axis]) / whole};
}

// Rows go down; the last axis, or the second one that is cut, goes across.
void draw_boxes(const Entry& entry, const std::vector<Axis>& axes, ChunkMap& map) {
  const bool across = axes.size() == 1 && axes[0].number + 1 == entry.shape.size();
  for (size_t i = 0; i < entry.chunks.size(); ++i) {
    ChunkMap::Cell cell{0, 0, 1, 1, i, 1};
    for (size_t k = 0; k < axes.size(); ++k) {
      const auto [begin, size] = part_of(entry, entry.chunks[i], axes[k].number);
      const bool goes_across = across || k == 1;
      (goes_across ? cell.x : cell.y) = begin;
      (goes_across ? cell.width : cell.height) = size;
    }
    map.cells.push_back(cell);
  }
  map.rows = axes.empty() || across ? 1 : axes[0].parts;
}

void draw_strip(const Entry& entry, size_t most_cells, ChunkMap& map) {
  const size_t count = entry.chunks.size();
  const size_t cells = std::min(count, most_cells);
  for (size_t i = 0; i < cells; ++i) {
    const size_t first = i * count / cells, end = (i + 1) * count / cells;
    const double width = 1.0 / static_cast<double>(cells);
    map.cells.push_back({static_cast<double>(i) * width, 0, width, 1, first, end - first});
  }
  map.to_scale = false;
}

}  // namespace

ChunkMap chunk_map(const Entry& entry, size_t most_cells) {
  ChunkMap map;
  const std::vector<Axis> axes = cut_axes(entry);
  const bool has_runs = std::any_of(entry.chunks.begin(), entry.chunks.end(),
                                    [](const Chunk& chunk) { return chunk.is_run(); });
  map.cut =
      has_runs ? fmt::format("flat, in {} runs", grouped(static_cast<int64_t>(entry.chunks.size())))
               : cut_text(entry, axes);
  if (!has_runs && axes.size() <= 2 && entry.chunks.size() <= most_cells) {
    draw_boxes(entry, axes, map);
  } else {
    draw_strip(entry, most_cells, map);
  }
  return map;
}

}  // namespace ferry::tool
