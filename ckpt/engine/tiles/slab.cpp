#include "ckpt/engine/tiles/slab.h"

#include <algorithm>
#include <utility>

namespace ferry {
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
