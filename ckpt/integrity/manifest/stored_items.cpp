#include "ckpt/integrity/manifest/stored_items.h"

#include <algorithm>
#include <map>

#include "ckpt/base/error.h"
#include "ckpt/io/file_system.h"

namespace ferry {
namespace {

// Bytes of a file that hold something.
struct Holding {
  uint64_t offset = 0, end = 0;
  std::vector<ManifestTensor> tensors;
  std::string object;
};

using HoldingsByFile = std::map<std::string, std::vector<Holding>>;

HoldingsByFile holdings_of(const Catalog* stored) {
  HoldingsByFile by_file;
  if (stored == nullptr) return by_file;
  const auto add = [&](const Extent& extent) -> Holding* {
    if (extent.length == 0) return nullptr;
    auto& holdings = by_file[stored->files.at(extent.file).path];
    return &holdings.emplace_back(Holding{extent.offset, extent.offset + extent.length, {}, {}});
  };
  for (const Entry& entry : stored->entries) {
    for (const Chunk& chunk : entry.chunks) {
      if (Holding* holding = add(chunk.extent)) holding->tensors = {{entry.name, chunk.box}};
    }
  }
  for (const Object& object : stored->objects) {
    if (Holding* holding = add(object.extent)) holding->object = object.name;
  }
  return by_file;
}

// Those that overlap (tensors that share a storage, objects of one pickle) become one.
std::vector<Holding> apart(std::vector<Holding> holdings) {
  std::stable_sort(holdings.begin(), holdings.end(),
                   [](const Holding& a, const Holding& b) { return a.offset < b.offset; });
  std::vector<Holding> result;
  for (Holding& holding : holdings) {
    if (result.empty() || holding.offset >= result.back().end) {
      result.push_back(std::move(holding));
      continue;
    }
    Holding& last = result.back();
    last.end = std::max(last.end, holding.end);
    last.tensors.insert(last.tensors.end(), holding.tensors.begin(), holding.tensors.end());
    if (last.object.empty()) last.object = std::move(holding.object);
  }
  return result;
}

ManifestFile file_of(std::string path, const FileInfo& file, std::vector<Holding> holdings) {
  ManifestFile result{std::move(path), file.bytes, {}};
  uint64_t end = 0;
  for (Holding& holding : apart(std::move(holdings))) {
    if (holding.end > file.bytes) {
      fail(ErrorKind::corrupt, "{}: ends at byte {}, but what it holds at {}", file.path,
           file.bytes, holding.end);
    }
    if (holding.offset > end) result.items.push_back({end, holding.offset - end, {}, {}, {}});
    result.items.push_back({holding.offset,
                            holding.end - holding.offset,
                            {},
                            std::move(holding.tensors),
                            std::move(holding.object)});
    end = holding.end;
  }
  if (end < file.bytes) result.items.push_back({end, file.bytes - end, {}, {}, {}});
  return result;
}

}  // namespace

Manifest stored_items(const Catalog* stored, const std::string& folder,
                      std::span<const FileInfo> files) {
  HoldingsByFile holdings = holdings_of(stored);
  Manifest manifest;
  const size_t prefix = join(folder, "").size();
  for (const FileInfo& file : files) {
    manifest.files.push_back(
        file_of(file.path.substr(prefix), file, std::move(holdings[file.path])));
  }
  return manifest;
}

}  // namespace ferry
