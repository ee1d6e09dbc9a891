#include "ckpt/io/file_system.h"

#include <algorithm>

#include "ckpt/base/error.h"

namespace ferry {

std::string read_file(const FileSystem& file_system, const std::string& path, uint64_t limit) {
  const auto file = file_system.open(path);
  if (file->size() > limit) {
    fail(ErrorKind::exhausted, "{} has {} bytes; at most {} are expected of such a file", path,
         file->size(), limit);
  }
  std::string content(file->size(), '\0');
  file->read(0, std::as_writable_bytes(std::span(content)));
  return content;
}

std::string join_untrusted(const std::string& folder, const std::string& name) {
  bool leaves = name.empty() || name.front() == '/' || name.find('\0') != std::string::npos;
  for (size_t begin = 0; begin <= name.size() && !leaves;) {
    const size_t end = std::min(name.find('/', begin), name.size());
    leaves = name.substr(begin, end - begin) == "..";
    begin = end + 1;
  }
  constexpr size_t kMostBytes = 4096;  // PATH_MAX
  if (name.size() > kMostBytes) {
    fail(ErrorKind::corrupt, "{}: a file name in its metadata has {} bytes: '{}...'", folder,
         name.size(), name.substr(0, 100));
  }
  if (leaves) {
    std::string shown = name;  // a message ends at a NUL
    std::replace(shown.begin(), shown.end(), '\0', '?');
    fail(ErrorKind::corrupt, "{}: the file name '{}' in its metadata would leave the folder",
         folder, shown);
  }
  return join(folder, name);
}

std::string join(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

std::unique_ptr<WritableFile> FileSystem::open_to_write(const std::string& path) const {
  fail(ErrorKind::unsupported, "{}: files of this file system have one writer", path);
}

std::unique_ptr<AppendableFile> FileSystem::open_to_append(const std::string& path) const {
  fail(ErrorKind::unsupported, "{}: files of this file system do not grow", path);
}

SplitPath split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

void make_folders(const FileSystem& file_system, const std::string& path) {
  if (path.empty() || path == "." || path == "/") return;
  const PathKind kind = file_system.status(path).kind;
  if (kind == PathKind::folder) return;
  if (kind != PathKind::missing) fail(ErrorKind::invalid, "{}: is not a folder", path);
  const std::string parent = split_path(path).parent;
  make_folders(file_system, parent);
  try {
    file_system.create_folder(path);
  } catch (const Error&) {  // another process was faster
    if (file_system.status(path).kind != PathKind::folder) throw;
  }
  file_system.sync_folder(parent);  // what is synced in the folder would be lost with its name
}

void write_file(const FileSystem& file_system, const std::string& path,
                const std::string& content) {
  const auto file = file_system.create(path, content.size());
  file->write(0, std::as_bytes(std::span(content)));
  file->sync();
}

}  // namespace ferry
