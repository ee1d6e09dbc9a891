#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/io/zstd_stream.h"

namespace ferry {
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
