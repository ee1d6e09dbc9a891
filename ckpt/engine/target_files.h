// The files that a plan writes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/core/plan.h"
#include "ckpt/engine/engine.h"
#include "ckpt/io/file_system.h"

namespace ferry {

enum class TargetMode {
  create,        // of their size
  create_empty,  // they grow
  open,          // another process created them: those that are written are opened
};

/// A plan may have more files than a process may hold open: those that were not used for the
/// longest time are closed meanwhile, and opened again when they are written again.
class TargetFiles {
 public:
  /// Creates the plan's files in `folder`, several at a time. The file system must outlive the
  /// object, and so must the options, of which threads and cancel count.
  TargetFiles(const Plan& plan, const FileSystem& file_system, const std::string& folder,
              TargetMode mode, const EngineOptions& options);
  ~TargetFiles();
  TargetFiles(const TargetFiles&) = delete;
  TargetFiles& operator=(const TargetFiles&) = delete;

  /// One a file of the target catalog. Safe from several threads.
  std::span<WritableFile* const> files() const { return files_; }

  /// FileSystem::copy() to any file, one of TargetFiles too.
  static uint64_t copy(const FileSystem& file_system, const ReadableFile& from,
                       uint64_t from_offset, WritableFile& to, uint64_t to_offset, uint64_t length,
                       KernelCopy when);

  /// Syncs those that were created or used, several at a time.
  void sync();

 private:
  class OpenFiles;
  class File;

  void for_each(const std::function<void(size_t)>& work) const;

  const EngineOptions& options_;
  std::unique_ptr<OpenFiles> open_files_;
  std::vector<std::unique_ptr<File>> owners_;
  std::vector<WritableFile*> files_;
};

}  // namespace ferry
