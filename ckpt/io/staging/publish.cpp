#include "ckpt/io/staging/publish.h"

#include "ckpt/base/error.h"

namespace ferry {
namespace {

void write_new(const FileSystem& file_system, const std::string& path, const NewFile& content) {
  uint64_t bytes = 0;
  for (const auto& piece : content.pieces) bytes += piece.size();
  const auto file = file_system.create(path, bytes);
  uint64_t offset = 0;
  for (const auto& piece : content.pieces) {
    file->write(offset, piece);
    offset += piece.size();
  }
  file->sync();
  file->close();
}

// Where each file is written: at the lock's partial path itself where it is the only one.
std::vector<std::string> paths_aside(const WriteLock& write_lock, std::span<const NewFile> files) {
  const std::string aside = write_lock.partial_path();
  if (files.size() == 1) return {aside};
  std::vector<std::string> paths;
  for (const NewFile& file : files) paths.push_back(join(aside, file.name));
  return paths;
}

void put_in_place(const FileSystem& file_system, const WriteLock& write_lock,
                  const std::string& folder, std::span<const NewFile> files, Existing existing) {
  const std::vector<std::string> asides = paths_aside(write_lock, files);
  if (files.size() != 1) file_system.create_folder(write_lock.partial_path());
  for (size_t i = 0; i < files.size(); ++i) write_new(file_system, asides[i], files[i]);
  write_lock.check();
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string path = join(folder, files[i].name);
    if (existing == Existing::replace) {
      file_system.replace(asides[i], path);
    } else {
      file_system.rename(asides[i], path);
    }
  }
}

}  // namespace

void publish_files(const FileSystem& file_system, const WriteLock& write_lock,
                   const std::string& folder, std::span<const NewFile> files, Existing existing,
                   const std::string& done) {
  if (files.empty()) return;
  try {
    put_in_place(file_system, write_lock, folder, files, existing);
  } catch (...) {
    write_lock.drop_partial();
    throw;
  }
  write_lock.drop_partial();  // the folder of several files, which is empty by now
  sync_published(
      file_system, folder,
      done.empty() ? join(folder, files.back().name) + " is complete and in place" : done);
}

void publish_file(const FileSystem& file_system, const WriteLock& write_lock,
                  const std::string& path, const std::string& content, Existing existing,
                  const std::string& done) {
  const SplitPath parts = split_path(path);
  const NewFile file{parts.name, {std::as_bytes(std::span(content))}};
  publish_files(file_system, write_lock, parts.parent, {&file, 1}, existing, done);
}

void sync_published(const FileSystem& file_system, const std::string& folder,
                    const std::string& done, const std::string& more) {
  try {
    file_system.sync_folder(folder);
  } catch (const Error& error) {
    fail(error.kind(), "{}, but may not outlast a power loss: {}{}", done, error.what(), more);
  }
}

}  // namespace ferry
