#include "ckpt/engine/target_files.h"

#include <atomic>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"

namespace ferry {

TargetFiles::TargetFiles(const Plan& plan, const FileSystem& file_system, const std::string& folder,
                         bool of_full_size) {
  for (const FileInfo& file : plan.target.files) {
    const uint64_t bytes = of_full_size ? file.bytes : 0;
    owners_.push_back(file_system.create(join(folder, file.path), bytes));
    files_.push_back(owners_.back().get());
  }
}

void TargetFiles::sync(const EngineOptions& options) {
  std::atomic<size_t> next{0};
  const int threads = std::min<int>(thread_count(options.threads), static_cast<int>(files_.size()));
  on_threads(threads, [&](int) {
    for (size_t i = next++; i < files_.size(); i = next++) {
      if (options.cancel && *options.cancel) fail(ErrorKind::cancelled, "stopped on request");
      files_[i]->sync();
    }
  });
}

}  // namespace ferry
