#include "ckpt/format/torch/objects.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/torch/torch_archive.h"
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

}  // namespace

LoadedValue read_object(const Catalog& catalog, const Object& object) {
  const FileInfo& info = catalog.files.at(object.extent.file);
  Extent extent = object.extent;
  const std::string what =
      fmt::format("object {} in {} at byte {}", object.name, info.path, extent.offset);
  auto file = catalog.file_system->open(info.path);
  if (extent.offset > file->size() || extent.length > file->size() - extent.offset) {
    fail(ErrorKind::corrupt, "{}: {} bytes are expected but the file has {}; it is truncated", what,
         extent.length, file->size());
  }
  if (extent.zstd) {
    file = decode(std::move(file), extent, what);
    extent.offset = 0;
    extent.length = file->size();
  }
  const std::string start = read_bytes(*file, extent.offset, std::min<uint64_t>(extent.length, 32));
  LoadedValue loaded;
  if (start.starts_with("PK\3\4")) {
    loaded.document = read_torch_archive(*file, extent.offset, extent.length).pickle;
  } else if (is_legacy_torch_file(start)) {
    ItemReader item(*file, extent.offset, extent.length);
    loaded.document = read_legacy_value(item);
  } else {
    if (extent.length > kMostBytes) fail_too_large(what);
    const std::string bytes = read_bytes(*file, extent.offset, extent.length);
    loaded.document = parse_pickle(std::as_bytes(std::span(bytes)), what);
  }
  loaded.value = loaded.document->root();
  for (const std::string& key : object.path) {
    const Value inner = element(loaded.value, key);
    if (!inner.document()) {
      fail(ErrorKind::not_found, "{}: it has no '{}'", what, key);
    }
    loaded.value = inner;
  }
  return loaded;
}

}  // namespace ferry
