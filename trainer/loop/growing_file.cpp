#include "trainer/loop/growing_file.h"

#include <span>

#include "ckpt/base/error.h"

namespace ferry {

GrowingFile::GrowingFile(const FileSystem& files, const std::string& path) {
  const PathStatus status = files.status(path);
  if (status.kind == PathKind::missing && !status.link) files.create(path, 0);
  file_ = files.open_to_append(files.real_path(path));  // a link stays one
}

void GrowingFile::append(std::string_view bytes) {
  file_->append(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

void LineFile::append(std::string_view line) {
  if (last_byte().value_or(std::byte{'\n'}) == std::byte{'\n'}) return GrowingFile::append(line);
  GrowingFile::append("\n" + std::string(line));  // at once, so that no other line is cut short
}

std::unique_ptr<LockableFile> lock_of_writer(const FileSystem& files, const std::string& path) {
  auto lock = files.open_lockable(path, LockMode::exclusive);
  if (lock->lock(LockMode::exclusive) != LockState::busy) return lock;
  fail(ErrorKind::busy, "{} is being written by another run; name another file", path);
}

}  // namespace ferry
