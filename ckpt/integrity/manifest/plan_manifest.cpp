#include "ckpt/integrity/manifest/plan_manifest.h"

#include <algorithm>
#include <tuple>

#include "ckpt/base/error.h"
#include "ckpt/core/item_index.h"

namespace ferry {
namespace {

struct Range {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;

  uint64_t end() const { return offset + length; }
};

// What items must not cut: the items that are there, and outside of them chunks and objects.
std::vector<Range> whole_ranges(const Plan& plan) {
  std::vector<Range> ranges;
  const ItemIndex index(plan.items);
  for (uint32_t i : index.in_order()) {
    ranges.push_back({plan.items[i].file, plan.items[i].offset, plan.items[i].length});
  }
  const auto add = [&](const Extent& extent) {
    if (extent.length == 0 || index.find(extent.file, extent.offset, extent.length)) return;
    ranges.push_back({extent.file, extent.offset, extent.length});
  };
  for (const Entry& entry : plan.target.entries) {
    for (const Chunk& chunk : entry.chunks) add(chunk.extent);
  }
  for (const Object& object : plan.target.objects) add(object.extent);
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  return ranges;
}

}  // namespace

void complete_items(Plan& plan) {
  const std::vector<Range> ranges = whole_ranges(plan);
  const ItemIndex index(plan.items);
  std::vector<Item> added;
  auto next = ranges.begin();
  for (uint32_t file = 0; file < plan.target.files.size(); ++file) {
    uint64_t end = 0;
    for (; next != ranges.end() && next->file == file; ++next) {
      if (next->offset > end) added.push_back({file, end, next->offset - end, {}});
      if (!index.find(file, next->offset, next->length)) {
        added.push_back({file, next->offset, next->length, {}});
      }
      end = next->end();
    }
    const uint64_t bytes = plan.target.files[file].bytes;
    if (bytes > end) added.push_back({file, end, bytes - end, {}});
  }
  plan.items.insert(plan.items.end(), added.begin(), added.end());
}

Manifest manifest_of(const Plan& plan, std::span<const Digest> digests) {
  Manifest manifest;
  for (const FileInfo& file : plan.target.files) {
    manifest.files.push_back({file.path, file.bytes, {}});
  }
  const ItemIndex index(plan.items);
  std::vector<uint32_t> place(plan.items.size());  // of an item among those of its file
  for (uint32_t i : index.in_order()) {
    const Item& item = plan.items[i];
    std::vector<ManifestItem>& items = manifest.files[item.file].items;
    place[i] = static_cast<uint32_t>(items.size());
    items.push_back({item.offset, item.length, digests[i], {}, {}});
  }
  const auto item_of = [&](const Extent& extent) -> ManifestItem* {
    if (extent.length == 0) return nullptr;
    const auto found = index.find(extent.file, extent.offset, extent.length);
    if (!found) fail(ErrorKind::internal, "an item of the manifest is missing");
    return &manifest.files[extent.file].items[place[*found]];
  };
  for (const Entry& entry : plan.target.entries) {
    for (const Chunk& chunk : entry.chunks) {
      ManifestItem* item = item_of(chunk.extent);
      if (item) item->tensors.push_back({entry.name, chunk.box});
    }
  }
  for (const Object& object : plan.target.objects) {
    ManifestItem* item = item_of(object.extent);
    if (item) item->object = object.name;
  }
  return manifest;
}

}  // namespace ferry
