#include "ckpt/integrity/manifest/folder_files.h"

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr int kMostFolders = 16;  // inside each other

class Walk {
 public:
  Walk(const FileSystem& file_system, const std::atomic<bool>* cancel)
      : file_system_(file_system), cancel_(cancel) {}

  void look(const std::string& folder, int depth, bool below_link) {
    if (cancel_ && *cancel_) fail(ErrorKind::cancelled, "stopped on request");
    for (const std::string& name : file_system_.list(folder)) {
      const std::string path = join(folder, name);
      const PathStatus status = file_system_.status(path);
      if (status.kind == PathKind::file) found.files.push_back({path, status.bytes});
      if (status.kind != PathKind::folder) continue;
      if (status.link && below_link) {
        found.not_seen.push_back(path + " was not checked: a link inside a linked folder");
      } else if (depth == kMostFolders) {
        found.not_seen.push_back(path + " was not checked: too many nested folders");
      } else {
        look(path, depth + 1, below_link || status.link);
      }
    }
  }

  FolderFiles found;

 private:
  const FileSystem& file_system_;
  const std::atomic<bool>* cancel_;
};

}  // namespace

FolderFiles files_below(const FileSystem& file_system, const std::string& folder,
                        const std::atomic<bool>* cancel) {
  Walk walk(file_system, cancel);
  walk.look(folder, 1, false);
  return std::move(walk.found);
}

}  // namespace ferry
