// The files that a plan writes, open.
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
  open,          // another process created them
};

class TargetFiles {
 public:
  /// Creates or opens the plan's files in `folder`, several at a time. Of the options, which must
  /// outlive the object, threads and cancel count.
  TargetFiles(const Plan& plan, const FileSystem& file_system, const std::string& folder,
              TargetMode mode, const EngineOptions& options);

  /// One a file of the target catalog.
  std::span<WritableFile* const> files() const { return files_; }

  /// Syncs all, several at a time.
  void sync();

 private:
  void for_each(const std::function<void(size_t)>& work) const;

  const EngineOptions& options_;
  std::vector<std::unique_ptr<WritableFile>> owners_;
  std::vector<WritableFile*> files_;
};

}  // namespace ferry
