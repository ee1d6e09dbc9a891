#include <sys/mman.h>

#include <cstring>

#include "ckpt/base/error.h"
#include "ckpt/io/posix_files.h"

namespace ferry {

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
  if (offset > bytes_.size() || bytes > bytes_.size() - offset) {
    fail(ErrorKind::corrupt, "{} ends at byte {}, and has no {} bytes from byte {} on", path_,
         bytes_.size(), bytes, offset);
  }
  return bytes_.subspan(offset, bytes);
}

}  // namespace ferry
