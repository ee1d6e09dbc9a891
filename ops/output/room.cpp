#include "ops/output/room.h"

#include <fmt/format.h>

#include "ckpt/base/error.h"
#include "ckpt/base/size_text.h"

namespace ferry {

std::string nearest_folder(const FileSystem& file_system, const std::string& path) {
  std::string folder = path;
  while (file_system.status(folder).kind == PathKind::missing) {
    std::string parent = split_path(folder).parent;
    if (parent == folder) break;
    folder = std::move(parent);
  }
  return folder;
}

void check_permission(const FileSystem& file_system, const std::string& folder) {
  if (file_system.may_create_in(folder)) return;
  fail(ErrorKind::io,
       "nothing may be created in {} (permissions, or a file system that is mounted read-only); "
       "choose another target",
       folder);
}

std::optional<uint64_t> check_room(const FileSystem& file_system, const std::string& folder,
                                   uint64_t bytes, std::vector<std::string>& warnings) {
  const std::optional<FreeSpace> space = file_system.free_space(folder);
  if (!space) return std::nullopt;
  if (bytes <= space->bytes) return space->bytes;
  const std::string amounts =
      fmt::format("{} ({} bytes) are needed in {}, where {} ({} bytes) are free",
                  human_bytes(bytes), bytes, folder, human_bytes(space->bytes), space->bytes);
  if (space->is_exact) {
    fail(ErrorKind::exhausted,
         "{}; make room or choose another target (what {} replaces stays until the new is "
         "complete)",
         amounts, option("overwrite"));
  }
  warnings.push_back(amounts + ", unless the file system compresses or shares what it stores");
  return space->bytes;
}

}  // namespace ferry
