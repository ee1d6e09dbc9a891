// A file of a run folder that only grows: logs, events, metrics.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/io/file_system.h"

namespace ferry {

/// Goes on behind what the file holds, or begins one. What others cut off meanwhile, as logrotate's
/// copytruncate does, is gone, and the next bytes follow what is left; a file that they rename goes
/// on under its new name. One writer at a time; one thread.
class GrowingFile {
 public:
  GrowingFile(const FileSystem& files, const std::string& path);
  /// On error nothing of it stays, where the file system lets.
  void append(std::string_view bytes);
  /// Returns when all of it is on disk.
  void sync() { file_->sync(); }

 protected:
  std::optional<std::byte> last_byte() const { return file_->last_byte(); }

 private:
  std::unique_ptr<AppendableFile> file_;
};

/// One of lines, each with its end. A last one without an end, which a kill or a full disk cut
/// short, is ended first: so it spoils no other.
class LineFile : public GrowingFile {
 public:
  using GrowingFile::GrowingFile;
  void append(std::string_view line);
};

/// Of a file that is there: for as long as a run writes it alone. busy where another one does.
std::unique_ptr<LockableFile> lock_of_writer(const FileSystem& files, const std::string& path);

}  // namespace ferry
