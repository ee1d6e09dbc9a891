// A file of a run folder that only grows: logs, events, metrics.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Goes on behind what the file holds, or begins one. One writer at a time; one thread.
class GrowingFile {
 public:
  GrowingFile(const FileSystem& files, const std::string& path);
  void append(std::string_view bytes);
  /// Returns when all of it is on disk.
  void sync() { file_->sync(); }

 protected:
  uint64_t end() const { return end_; }
  void read(uint64_t offset, std::span<std::byte> into) const { file_->read(offset, into); }

 private:
  std::unique_ptr<WritableFile> file_;
  uint64_t end_ = 0;  // bytes
};

/// One of lines. A last one without an end, which a kill or a full disk cut short, is ended first:
/// so it spoils no other.
class LineFile : public GrowingFile {
 public:
  LineFile(const FileSystem& files, const std::string& path);
};

/// Of a file that is there: for as long as a run writes it alone. busy where another one does.
std::unique_ptr<LockableFile> lock_of_writer(const FileSystem& files, const std::string& path);

/// Makes a folder and those above it, where they are missing; their names are on disk then.
void make_folders(const FileSystem& files, const std::string& path);

}  // namespace ferry
