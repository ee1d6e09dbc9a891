#include <sys/mman.h>

#include <cstring>

#include "ckpt/base/error.h"
#include "ckpt/io/posix_files.h"

namespace ferry {
namespace {

template <typename Byte>
std::span<Byte> mapped_part(std::span<Byte> file, const std::string& path, uint64_t offset,
                            uint64_t bytes) {
  if (offset > file.size() || bytes > file.size() - offset) {
    fail(ErrorKind::corrupt, "{} ends at byte {}, and has no {} bytes from byte {} on", path,
         file.size(), bytes, offset);
  }
  return file.subspan(offset, bytes);
}

}  // namespace

PosixMappedFile::PosixMappedFile(const PosixReadableFile& file) : path_(file.path()) {
  if (file.size() == 0) return;  // which cannot be mapped
  void* begin = ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (begin == MAP_FAILED) fail_errno("map", path_);
  bytes_ = {static_cast<const std::byte*>(begin), file.size()};
}

PosixMappedFile::~PosixMappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void PosixMappedFile::read(uint64_t offset, std::span<std::byte> into) const {
  const std::span<const std::byte> from = view(offset, into.size());
  if (!into.empty()) std::memcpy(into.data(), from.data(), into.size());
}

std::span<const std::byte> PosixMappedFile::view(uint64_t offset, uint64_t bytes) const {
  return mapped_part(bytes_, path_, offset, bytes);
}

PrivateMapping::~PrivateMapping() { ::munmap(bytes_.data(), bytes_.size()); }

std::span<std::byte> PrivateMapping::part(uint64_t offset, uint64_t bytes) const {
  return mapped_part(bytes_, path_, offset, bytes);
}

// Pages that are written become memory of this process. None is set aside for all of them: a file
// may be larger than the memory.
std::shared_ptr<PrivateMapping> map_privately(const ReadableFile& file) {
  const auto* source = dynamic_cast<const PosixReadableFile*>(&file);
  if (source == nullptr || source->size() == 0) return nullptr;
  void* begin = ::mmap(nullptr, source->size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                       source->descriptor(), 0);
  if (begin == MAP_FAILED) return nullptr;
  try {
    return std::make_shared<PrivateMapping>(
        source->path(), std::span(static_cast<std::byte*>(begin), source->size()));
  } catch (...) {
    ::munmap(begin, source->size());
    throw;
  }
}

}  // namespace ferry
