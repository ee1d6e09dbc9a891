#include "trainer/loop/growing_file.h"

#include <span>

#include "ckpt/base/error.h"

namespace ferry {

GrowingFile::GrowingFile(const FileSystem& files, const std::string& path) {
  const PathStatus status = files.status(path);
  if (status.kind == PathKind::missing) {
    file_ = files.create(path, 0);
  } else {
    file_ = files.open_to_write(path);
    end_ = status.bytes;
  }
}

void GrowingFile::append(std::string_view bytes) {
  file_->write(end_, std::as_bytes(std::span(bytes.data(), bytes.size())));
  end_ += bytes.size();
}

void make_folders(const FileSystem& files, const std::string& path) {
  if (path.empty() || path == "." || path == "/") return;
  const PathKind kind = files.status(path).kind;
  if (kind == PathKind::folder) return;
  if (kind != PathKind::missing) fail(ErrorKind::invalid, "{}: is no folder", path);
  make_folders(files, split_path(path).parent);
  try {
    files.create_folder(path);
  } catch (const Error&) {  // another process was faster
    if (files.status(path).kind != PathKind::folder) throw;
  }
}

}  // namespace ferry
