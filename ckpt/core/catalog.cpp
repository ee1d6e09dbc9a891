#include "ckpt/core/catalog.h"

#include <algorithm>

#include "ckpt/core/checked.h"

namespace ferry {
namespace {

// Overlap among boxes by a sweep along one axis: chunks are a grid in practice, so that few boxes
// share any coordinate of the axis with the most different offsets.
void check_disjoint(const Catalog& catalog, const Entry& entry) {
  const size_t rank = entry.shape.size();
  std::vector<const Chunk*> boxes;
  for (const Chunk& chunk : entry.chunks) {
    if (std::find(chunk.box.size.begin(), chunk.box.size.end(), 0) == chunk.box.size.end()) {
      boxes.push_back(&chunk);
    }
  }
  size_t sweep_axis = 0, most = 0;
  for (size_t axis = 0; axis < rank; ++axis) {
    std::vector<int64_t> offsets;
    for (const Chunk* chunk : boxes) offsets.push_back(chunk->box.offset[axis]);
    std::sort(offsets.begin(), offsets.end());
    const size_t distinct = std::unique(offsets.begin(), offsets.end()) - offsets.begin();
    if (distinct > most) most = distinct, sweep_axis = axis;
  }
  const auto begin = [&](const Chunk* c) { return rank ? c->box.offset[sweep_axis] : 0; };
  const auto end = [&](const Chunk* c) { return rank ? begin(c) + c->box.size[sweep_axis] : 1; };
  std::sort(boxes.begin(), boxes.end(),
            [&](const Chunk* a, const Chunk* b) { return begin(a) < begin(b); });
  std::vector<const Chunk*> open;
  for (const Chunk* chunk : boxes) {
    std::erase_if(open, [&](const Chunk* o) { return end(o) <= begin(chunk); });
    for (const Chunk* other : open) {
      if (!overlaps(chunk->box, other->box)) continue;
      const bool disjoint_runs = chunk->is_run() && other->is_run() && chunk->box == other->box &&
                                 (chunk->run_begin + chunk->run_count <= other->run_begin ||
                                  other->run_begin + other->run_count <= chunk->run_begin);
      if (disjoint_runs) continue;
      fail(ErrorKind::corrupt,
           "tensor {}: chunk {} of {} overlaps chunk {} of {}; the checkpoint's metadata is damaged",
           entry.name, to_string(chunk->box), catalog.files.at(chunk->extent.file).path,
           to_string(other->box), catalog.files.at(other->extent.file).path);
    }
    open.push_back(chunk);
  }
}

}  // namespace

int64_t Entry::bytes() const { return checked_multiply(elements(), size_bytes(dtype), name); }

uint32_t Catalog::add_file(std::string path, uint64_t bytes) {
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].path == path) return static_cast<uint32_t>(i);
  }
  files.push_back({std::move(path), bytes});
  return static_cast<uint32_t>(files.size() - 1);
}

const Entry* Catalog::find(std::string_view name) const {
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const Entry& entry) { return entry.name == name; });
  return at == entries.end() ? nullptr : &*at;
}

const Object* Catalog::find_object(std::string_view name) const {
  const auto at = std::find_if(objects.begin(), objects.end(),
                               [&](const Object& object) { return object.name == name; });
  return at == objects.end() ? nullptr : &*at;
}

EntryIndex::EntryIndex(const Catalog& catalog) : catalog_(&catalog) {
  positions_.reserve(catalog.entries.size());
  for (size_t i = 0; i < catalog.entries.size(); ++i) {
    if (!positions_.emplace(catalog.entries[i].name, i).second) {
      fail(ErrorKind::corrupt, "tensor {} stands twice in the checkpoint", catalog.entries[i].name);
    }
  }
}

const Entry* EntryIndex::find(std::string_view name) const {
  const auto at = positions_.find(name);
  return at == positions_.end() ? nullptr : &catalog_->entries[at->second];
}

void check_chunks(const Catalog& catalog, const Entry& entry) {
  const int64_t expected = entry.elements();
  int64_t covered = 0;
  for (const Chunk& chunk : entry.chunks) {
    if (chunk.extent.file >= catalog.files.size()) {
      fail(ErrorKind::corrupt, "tensor {}: a chunk names file number {} of {}", entry.name,
           chunk.extent.file, catalog.files.size());
    }
    const FileInfo& file = catalog.files[chunk.extent.file];
    if (!is_inside(chunk.box, entry.shape)) {
      fail(ErrorKind::corrupt, "tensor {}: chunk {} of {} does not lie inside the tensor's shape {}",
           entry.name, to_string(chunk.box), file.path, to_string(entry.shape));
    }
    const int64_t in_box = element_count(chunk.box.size, entry.name);
    if (chunk.is_run() && (chunk.run_begin < 0 || chunk.run_begin > in_box ||
                           chunk.run_count > in_box - chunk.run_begin)) {
      fail(ErrorKind::corrupt, "tensor {}: run of {} elements from {} leaves chunk {}", entry.name,
           chunk.run_count, chunk.run_begin, to_string(chunk.box));
    }
    if (chunk.extent.offset > file.bytes || chunk.extent.length > file.bytes - chunk.extent.offset) {
      fail(ErrorKind::corrupt,
           "tensor {}: chunk {} at bytes {}..+{} lies outside {} ({} bytes); the file is truncated "
           "or belongs to another checkpoint",
           entry.name, to_string(chunk.box), chunk.extent.offset, chunk.extent.length, file.path,
           file.bytes);
    }
    covered = checked_add(covered, chunk.is_run() ? chunk.run_count : in_box, entry.name);
  }
  check_disjoint(catalog, entry);
  if (covered != expected) {
    fail(ErrorKind::corrupt,
         "tensor {} of shape {}: its {} chunks hold {} of {} elements; the checkpoint is incomplete",
         entry.name, to_string(entry.shape), entry.chunks.size(), covered, expected);
  }
}

}  // namespace ferry
