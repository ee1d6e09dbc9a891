// The bytes of a whole file: mapped into memory where the file system supports it, otherwise
// copied.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

class FileBytes {
 public:
  FileBytes(const FileSystem& file_system, const std::string& path)
      : file_(file_system.map(path)), bytes_(file_->view(0, file_->size())) {
    if (!bytes_.empty() || file_->size() == 0) return;
    copy_.resize(file_->size());
    file_->read(0, copy_);
    bytes_ = copy_;
  }
  FileBytes(FileBytes&&) = default;
  FileBytes& operator=(FileBytes&&) = default;

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<const ReadableFile> file_;
  std::vector<std::byte> copy_;
  std::span<const std::byte> bytes_;
};

}  // namespace ferry
