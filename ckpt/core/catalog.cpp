#include "ckpt/core/catalog.h"

#include <algorithm>

#include "ckpt/base/checked.h"

namespace ferry {
namespace {

void check_disjoint(const Catalog& catalog, const Entry& entry) {
  std::vector<const Shard*> shards;
  for (const Chunk& chunk : entry.chunks) shards.push_back(&chunk);
  const auto overlap = find_overlap(shards);
  if (!overlap) return;
  const Chunk &a = entry.chunks[overlap->first], &b = entry.chunks[overlap->second];
  fail(ErrorKind::corrupt,
       "tensor {}: chunk {} of {} overlaps chunk {} of {}; the checkpoint's metadata is damaged",
       entry.name, to_string(a.box), catalog.files.at(a.extent.file).path, to_string(b.box),
       catalog.files.at(b.extent.file).path);
}

}  // namespace

int64_t Entry::bytes() const { return checked_multiply(elements(), size_bytes(dtype), name); }

uint32_t Catalog::add_file(std::string path, uint64_t bytes) {
  if (numbered_files_ > files.size()) {  // another list was moved or assigned there
    file_numbers_.clear();
    numbered_files_ = 0;
  }
  for (; numbered_files_ < files.size(); ++numbered_files_) {
    file_numbers_.emplace(files[numbered_files_].path, static_cast<uint32_t>(numbered_files_));
  }
  const auto [known, is_new] = file_numbers_.emplace(path, static_cast<uint32_t>(files.size()));
  if (!is_new) return known->second;
  files.push_back({std::move(path), bytes});
  ++numbered_files_;
  return known->second;
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

SharedCatalog SharedCatalog::borrow(const Catalog& catalog) {
  SharedCatalog shared{Catalog()};
  shared.catalog_ = std::shared_ptr<const Catalog>(std::shared_ptr<void>(), &catalog);
  return shared;
}

Catalog& SharedCatalog::edit() {
  // 0 is a borrowed catalog.
  if (catalog_.use_count() != 1) catalog_ = std::make_shared<const Catalog>(*catalog_);
  return const_cast<Catalog&>(*catalog_);  // nobody else's
}

EntryIndex::EntryIndex(const Catalog& catalog) : catalog_(&catalog) {
  positions_.reserve(catalog.entries.size());
  for (size_t i = 0; i < catalog.entries.size(); ++i) {
    if (!positions_.emplace(catalog.entries[i].name, i).second) {
      fail(ErrorKind::corrupt, "tensor {} is in the checkpoint twice", catalog.entries[i].name);
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
      fail(ErrorKind::corrupt, "tensor {}: chunk {} of {} is not inside the tensor's shape {}",
           entry.name, to_string(chunk.box), file.path, to_string(entry.shape));
    }
    if (!is_inside(chunk, entry.shape)) {
      fail(ErrorKind::corrupt, "tensor {}: run of {} elements from {} leaves chunk {}", entry.name,
           chunk.run_count, chunk.run_begin, to_string(chunk.box));
    }
    if (chunk.extent.offset > file.bytes ||
        chunk.extent.length > file.bytes - chunk.extent.offset) {
      fail(ErrorKind::corrupt,
           "tensor {}: chunk {} at bytes {}..+{} is outside {} ({} bytes); the file is truncated "
           "or belongs to another checkpoint",
           entry.name, to_string(chunk.box), chunk.extent.offset, chunk.extent.length, file.path,
           file.bytes);
    }
    covered = checked_add(covered, chunk.elements(entry.name), entry.name);
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
