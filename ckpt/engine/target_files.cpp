#include "ckpt/engine/target_files.h"

#include <algorithm>
#include <atomic>
#include <climits>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"

namespace ferry {

TargetFiles::TargetFiles(const Plan& plan, const FileSystem& file_system, const std::string& folder,
                         TargetMode mode, const EngineOptions& options)
    : options_(options), owners_(plan.target.files.size()), files_(owners_.size()) {
  // Reserving space takes time where it gives memory (tmpfs) or asks a server.
  for_each([&](size_t i) {
    const FileInfo& file = plan.target.files[i];
    const std::string path = join(folder, file.path);
    owners_[i] = mode == TargetMode::open
                     ? file_system.open_to_write(path)
                     : file_system.create(path, mode == TargetMode::create ? file.bytes : 0);
    files_[i] = owners_[i].get();
  });
}

void TargetFiles::sync() {
  for_each([&](size_t i) { files_[i]->sync(); });
}

// On several threads.
void TargetFiles::for_each(const std::function<void(size_t)>& work) const {
  std::atomic<size_t> next{0};
  const int most = static_cast<int>(std::min<size_t>(files_.size(), INT_MAX));
  on_threads(std::min(thread_count(options_.threads), most), [&](int) {
    for (size_t i = next++; i < files_.size(); i = next++) {
      if (options_.cancel && *options_.cancel) fail(ErrorKind::cancelled, "stopped on request");
      work(i);
    }
  });
}

}  // namespace ferry
