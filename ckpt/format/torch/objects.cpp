#include "ckpt/format/torch/objects.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/format/torch/torch_legacy.h"
#include "ckpt/io/zstd_stream.h"

namespace ferry {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

// A decoded stream, readable like the file that it was in.
class DecodedFile final : public ReadableFile {
 public:
  DecodedFile(std::string path, std::string content)
      : path_(std::move(path)), content_(std::move(content)) {}
  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return content_.size(); }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    if (offset > content_.size() || into.size() > content_.size() - offset) {
      fail(ErrorKind::corrupt, "{}: the decoded stream ends after {} bytes", path_,
           content_.size());
    }
    if (!into.empty()) std::memcpy(into.data(), content_.data() + offset, into.size());
  }

 private:
  std::string path_;
  std::string content_;
};

[[noreturn]] void fail_too_large(const std::string& what) {
  fail(ErrorKind::exhausted, "{}: larger than {} bytes, which no object of a checkpoint is", what,
       kMostBytes);
}

std::shared_ptr<const ReadableFile> decode(std::shared_ptr<const ReadableFile> file,
                                           const Extent& extent, const std::string& what) {
  std::string path = file->path() + " (decoded)";
  ZstdStream stream(std::move(file), extent.offset, extent.length);
  std::string content;
  constexpr size_t kStep = 1 << 20;
  for (size_t got = kStep; got == kStep;) {
    const size_t before = content.size();
    if (before > kMostBytes) fail_too_large(what);
    content.resize(before + kStep);
    got = stream.read_some(std::as_writable_bytes(std::span(content)).subspan(before));
    content.resize(before + got);
  }
  return std::make_shared<DecodedFile>(std::move(path), std::move(content));
}

std::string read_bytes(const ReadableFile& file, uint64_t offset, uint64_t length) {
  std::string bytes(length, '\0');
  file.read(offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

Value element(const Value& value, const std::string& key) {
  if (value.has(key)) return value.get(key);
  size_t index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  const bool is_number = error == std::errc() && end == key.data() + key.size();
  if (!is_number) return {};
  for (size_t i = value.pair_count(); i-- > 0;) {
    if (value.pair_key(i).integer() == static_cast<int64_t>(index)) return value.pair_value(i);
  }
  return value.kind() == ValueKind::list || value.kind() == ValueKind::tuple ? value[index]
                                                                             : Value();
}

// The file that holds an object, decoded when it is a stream, and its place in there.
struct Source {
  std::string what;
  std::shared_ptr<const ReadableFile> file;
  uint64_t offset = 0, length = 0;
};

Source open_source(const Catalog& catalog, const Object& object) {
  const FileInfo& info = catalog.files.at(object.extent.file);
  const Extent& extent = object.extent;
  Source source;
  source.what = fmt::format("object {} in {} at byte {}", object.name, info.path, extent.offset);
  source.file = catalog.file_system->open(info.path);
  if (extent.offset > source.file->size() || extent.length > source.file->size() - extent.offset) {
    fail(ErrorKind::corrupt, "{}: {} bytes are expected but the file has {}; it is truncated",
         source.what, extent.length, source.file->size());
  }
  source.offset = extent.offset;
  source.length = extent.length;
  if (extent.zstd) {
    source.file = decode(std::move(source.file), extent, source.what);
    source.offset = 0;
    source.length = source.file->size();
  }
  return source;
}

std::string start_of(const Source& source) {
  return read_bytes(*source.file, source.offset, std::min<uint64_t>(source.length, 32));
}

Value find_inside(const Value& root, const Object& object, const std::string& what) {
  Value value = root;
  for (const std::string& key : object.path) {
    const Value inner = element(value, key);
    if (!inner.document()) fail(ErrorKind::not_found, "{}: it has no '{}'", what, key);
    value = inner;
  }
  return value;
}

// Adds the bytes of one storage to those that the document holds.
void hold_storage(Document& document, const TorchArchive& archive, const Source& source,
                  const std::string& key, uint64_t bytes, uint64_t& budget) {
  if (document.storages.contains(key)) return;
  const auto record = archive.records.find("data/" + key);
  if (record == archive.records.end() || record->second.length < bytes) {
    fail(ErrorKind::corrupt, "{}: storage {} of {} bytes is not in the archive", source.what, key,
         bytes);
  }
  if (bytes > budget) fail_too_large(source.what);
  budget -= bytes;
  document.storages[key] = read_bytes(*source.file, record->second.offset, bytes);
}

}  // namespace

LoadedValue read_object(const Catalog& catalog, const Object& object) {
  const Source source = open_source(catalog, object);
  const std::string start = start_of(source);
  LoadedValue loaded;
  if (start.starts_with("PK\3\4")) {
    loaded.document = read_torch_archive(*source.file, source.offset, source.length).pickle;
  } else if (is_legacy_torch_file(start)) {
    ItemReader item(*source.file, source.offset, source.length);
    loaded.document = read_legacy_value(item);
  } else {
    if (source.length > kMostBytes) fail_too_large(source.what);
    const std::string bytes = read_bytes(*source.file, source.offset, source.length);
    loaded.document = parse_pickle(std::as_bytes(std::span(bytes)), source.what);
  }
  loaded.value = find_inside(loaded.document->root(), object, source.what);
  return loaded;
}

LoadedValue read_object_if_readable(const Catalog& catalog, std::string_view name,
                                    std::vector<std::string>* notes) {
  const Object* object = catalog.find_object(name);
  if (!object) return {};
  try {
    return read_object(catalog, *object);
  } catch (const Error& error) {
    if (notes) notes->push_back(error.what());
    return {};
  }
}

LoadedValue read_object_with_storages(const Catalog& catalog, const Object& object) {
  const LoadedValue loaded = read_object(catalog, object);
  return with_storages(catalog, object, loaded, std::span(&loaded.value, 1));
}

LoadedValue with_storages(const Catalog& catalog, const Object& object, const LoadedValue& loaded,
                          std::span<const Value> parts) {
  std::map<std::string, uint64_t> needed;
  for (const Value& part : parts) {
    for (const uint32_t node : reachable_nodes(part)) {
      const auto id = storage_id(part.document()->root_at(node));
      if (!id) continue;
      uint64_t& bytes = needed[std::string(id->key)];
      bytes = std::max(bytes, id->bytes);
    }
  }
  if (needed.empty()) return loaded;
  Source source = open_source(catalog, object);
  if (is_legacy_torch_file(start_of(source))) {  // storages follow the pickles
    source.length = source.file->size() - source.offset;
  }
  const auto archive = read_torch_archive(*source.file, source.offset, source.length);
  if (archive.big_endian) {
    fail(ErrorKind::unsupported, "{}: written on a big-endian machine", source.what);
  }
  auto document = std::make_shared<Document>(*loaded.document);
  uint64_t budget = kMostBytes;
  for (const auto& [key, bytes] : needed) {
    hold_storage(*document, archive, source, key, bytes, budget);
  }
  const uint32_t node = loaded.value.node();
  return {document, document->root_at(node)};
}

namespace {

constexpr uint64_t kMostObjectBytes = uint64_t{1} << 30;

[[noreturn]] void fail_too_large(const std::string& path, const std::string& name) {
  fail(ErrorKind::exhausted, "{}: object {} is larger than {} bytes, which none of a checkpoint is",
       path, name, kMostObjectBytes);
}

std::string decode(std::shared_ptr<const ReadableFile> file, const Object& object) {
  constexpr size_t kStep = 1 << 16;
  const std::string path = file->path();
  ZstdStream stream(std::move(file), object.extent.offset, object.extent.length);
  std::string content;
  for (size_t got = kStep; got == kStep;) {
    const size_t before = content.size();
    if (before > kMostObjectBytes) fail_too_large(path, object.name);
    content.resize(before + kStep);
    got = stream.read_some(std::as_writable_bytes(std::span(content)).subspan(before));
    content.resize(before + got);
  }
  return content;
}

}  // namespace

std::string read_object_bytes(const Catalog& catalog, const Object& object) {
  const Extent& extent = object.extent;
  auto file = catalog.file_system->open(catalog.files.at(extent.file).path);
  if (extent.offset > file->size() || extent.length > file->size() - extent.offset) {
    fail(ErrorKind::corrupt, "{}: object {} should have {} bytes at {}, but the file has {}",
         file->path(), object.name, extent.length, extent.offset, file->size());
  }
  if (extent.zstd) return decode(std::move(file), object);
  if (extent.length > kMostObjectBytes) fail_too_large(file->path(), object.name);
  std::string bytes(extent.length, '\0');
  file->read(extent.offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace ferry
