#include "ckpt/format/dcp/dcp_safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/safetensors.h"

namespace ferry {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr const char* kShardingInfo = "DCP_SHARDING_INFO";

// The end of a file, seen as a file of its own.
class FileTail final : public ReadableFile {
 public:
  FileTail(std::shared_ptr<const ReadableFile> file, uint64_t begin)
      : file_(std::move(file)), begin_(begin) {}
  const std::string& path() const noexcept override { return file_->path(); }
  uint64_t size() const noexcept override { return file_->size() - begin_; }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    file_->read(checked_add(begin_, offset, path()), into);
  }

 private:
  std::shared_ptr<const ReadableFile> file_;
  uint64_t begin_;
};

bool is_safetensors(const std::string& name) { return name.ends_with(kSuffix); }

// Offsets of a file's pieces by tensor name; empty when the file holds whole tensors.
std::unordered_map<std::string, Dims> sharding_info(const SafetensorsHeader& header,
                                                    const std::string& path) {
  std::unordered_map<std::string, Dims> offsets;
  const auto at = header.metadata.find(kShardingInfo);
  if (at == header.metadata.end()) return offsets;
  const auto json = nlohmann::json::parse(at->second, nullptr, false);
  const auto damaged = [&](std::string_view name) {
    fail(ErrorKind::corrupt, "{}: the {} of its header is damaged (tensor '{}')", path,
         kShardingInfo, name);
  };
  if (!json.is_object()) damaged("*");
  for (const auto& [name, info] : json.items()) {
    if (!info.is_object()) damaged(name);
    const auto saved = info.find("saved_offsets");
    if (saved == info.end() || !saved->is_array()) damaged(name);
    Dims dims;
    for (const auto& number : *saved) {
      if (!number.is_number_integer() || number.get<int64_t>() < 0) damaged(name);
      dims.push_back(number.get<int64_t>());
    }
    offsets[name] = std::move(dims);
  }
  return offsets;
}

// Adds the single chunk of `piece` to the entry of its name.
void join_piece(Catalog& catalog, std::unordered_map<std::string, size_t>& positions, Entry piece,
                const Dims& offset, const std::string& path) {
  if (offset.size() != piece.shape.size()) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' has {} axes but its offset has {}", path, piece.name,
         piece.shape.size(), offset.size());
  }
  Dims end;
  for (size_t axis = 0; axis < offset.size(); ++axis) {
    end.push_back(checked_add(offset[axis], piece.shape[axis], piece.name));
  }
  piece.chunks.at(0).box = {offset, piece.shape};
  const auto [at, is_new] = positions.emplace(piece.name, catalog.entries.size());
  if (is_new) {
    piece.shape = end;
    catalog.entries.push_back(std::move(piece));
    return;
  }
  Entry& entry = catalog.entries[at->second];
  if (entry.dtype != piece.dtype || entry.shape.size() != end.size()) {
    fail(ErrorKind::corrupt,
         "{}: its piece of tensor '{}' is {} with {} axes, other pieces are {} "
         "with {} axes",
         path, piece.name, torch_name(piece.dtype), end.size(), torch_name(entry.dtype),
         entry.shape.size());
  }
  for (size_t axis = 0; axis < end.size(); ++axis) {
    entry.shape[axis] = std::max(entry.shape[axis], end[axis]);
  }
  entry.chunks.push_back(std::move(piece.chunks[0]));
}

}  // namespace

const SafetensorsBlobs::Blob& SafetensorsBlobs::open(const Catalog& catalog, uint32_t file,
                                                     uint64_t offset) {
  const auto [at, is_new] = blobs_.try_emplace({file, offset});
  if (!is_new) return at->second;
  const auto opened = file_system_.open(catalog.files.at(file).path);
  if (offset > opened->size()) {
    fail(ErrorKind::corrupt, "{}: a safetensors blob should start at byte {}, but the file has {}",
         opened->path(), offset, opened->size());
  }
  for (Entry& entry : read_safetensors_header(FileTail(opened, offset), file).entries) {
    for (Chunk& chunk : entry.chunks) chunk.extent.offset += offset;
    std::string name = entry.name;
    at->second.emplace(std::move(name), std::move(entry));
  }
  return at->second;
}

Extent SafetensorsBlobs::find(const Catalog& catalog, uint32_t file, uint64_t offset,
                              std::string_view name, DType dtype, const Dims& shape) {
  const Blob& blob = open(catalog, file, offset);
  const auto at = blob.find(name);
  const std::string& path = catalog.files.at(file).path;
  if (at == blob.end()) {
    fail(ErrorKind::corrupt, "{}: no tensor '{}' in the safetensors blob at byte {}", path, name,
         offset);
  }
  const Entry& entry = at->second;
  if (entry.dtype != dtype || entry.shape != shape) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' is {} {} there, the checkpoint's metadata says {} {}",
         path, name, torch_name(entry.dtype), to_string(entry.shape), torch_name(dtype),
         to_string(shape));
  }
  return entry.chunks.at(0).extent;
}

bool has_safetensors_shards(const FileSystem& file_system, const std::string& folder) {
  for (const std::string& name : file_system.list(folder)) {
    if (is_safetensors(name) && name.starts_with("shard-")) return true;
  }
  return false;
}

Catalog open_safetensors_shards(std::shared_ptr<const FileSystem> file_system,
                                const std::string& folder) {
  Catalog catalog;
  catalog.file_system = file_system;
  std::unordered_map<std::string, size_t> positions;
  for (const std::string& name : file_system->list(folder)) {
    if (!is_safetensors(name)) continue;
    const auto file = file_system->open(join(folder, name));
    const auto number = static_cast<uint32_t>(catalog.files.size());
    catalog.files.push_back({file->path(), file->size()});
    SafetensorsHeader header = read_safetensors_header(*file, number);
    const auto offsets = sharding_info(header, file->path());
    for (Entry& piece : header.entries) {
      const auto at = offsets.find(piece.name);
      const Dims offset = at == offsets.end() ? Dims(piece.shape.size(), 0) : at->second;
      join_piece(catalog, positions, std::move(piece), offset, file->path());
    }
  }
  for (const Entry& entry : catalog.entries) check_chunks(catalog, entry);
  return catalog;
}

}  // namespace ferry
