// A file of a run folder that only grows: logs, events, metrics.
#pragma once

#include <memory>
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

 private:
  std::unique_ptr<WritableFile> file_;
  uint64_t end_ = 0;  // bytes
};

/// Makes a folder and those above it, where they are missing.
void make_folders(const FileSystem& files, const std::string& path);

}  // namespace ferry
