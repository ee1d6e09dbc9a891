#include "ckpt/core/catalog.h"

#include <algorithm>

#include "ckpt/base/box_index.h"
#include "ckpt/base/checked.h"

namespace ferry {
namespace {

bool disjoint_runs(const Chunk& a, const Chunk& b) {
  return a.is_run() && b.is_run() && a.box == b.box &&
         (a.run_begin + a.run_count <= b.run_begin || b.run_begin + b.run_count <= a.run_begin);
}

void check_disjoint(const Catalog& catalog, const Entry& entry) {
  if (entry.chunks.size() < 2) return;
  std::vector<Box> boxes;
  for (const Chunk& chunk : entry.chunks) boxes.push_back(chunk.box);
  const BoxIndex index(boxes);
  for (uint32_t i = 0; i < boxes.size(); ++i) {
    if (std::find(boxes[i].size.begin(), boxes[i].size.end(), 0) != boxes[i].size.end()) continue;
    for (uint32_t j : index.overlapping(boxes[i])) {
      const Chunk &a = entry.chunks[i], &b = entry.chunks[j];
      if (j <= i || disjoint_runs(a, b)) continue;
      fail(
          ErrorKind::corrupt,
          "tensor {}: chunk {} of {} overlaps chunk {} of {}; the checkpoint's metadata is damaged",
          entry.name, to_string(a.box), catalog.files.at(a.extent.file).path, to_string(b.box),
          catalog.files.at(b.extent.file).path);
    }
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
      fail(ErrorKind::corrupt,
           "tensor {}: chunk {} of {} does not lie inside the tensor's shape {}", entry.name,
           to_string(chunk.box), file.path, to_string(entry.shape));
    }
    const int64_t in_box = element_count(chunk.box.size, entry.name);
    if (chunk.is_run() && (chunk.run_begin < 0 || chunk.run_begin > in_box ||
                           chunk.run_count > in_box - chunk.run_begin)) {
      fail(ErrorKind::corrupt, "tensor {}: run of {} elements from {} leaves chunk {}", entry.name,
           chunk.run_count, chunk.run_begin, to_string(chunk.box));
    }
    if (chunk.extent.offset > file.bytes ||
        chunk.extent.length > file.bytes - chunk.extent.offset) {
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
    fail(
        ErrorKind::corrupt,
        "tensor {} of shape {}: its {} chunks hold {} of {} elements; the checkpoint is incomplete",
        entry.name, to_string(entry.shape), entry.chunks.size(), covered, expected);
  }
}

}  // namespace ferry
