#include "ckpt/io/tar_file_system.h"

#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/io/forwarding_file_system.h"

namespace ferry {
namespace {

// A run of bytes of another file.
class TarMemberFile : public ReadableFile {
 public:
  TarMemberFile(std::string path, std::shared_ptr<const ReadableFile> archive, TarMember member)
      : path_(std::move(path)), archive_(std::move(archive)), member_(std::move(member)) {}

  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return member_.bytes; }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    check(offset, into.size());
    archive_->read(member_.offset + offset, into);
  }
  std::span<const std::byte> view(uint64_t offset, uint64_t bytes) const override {
    check(offset, bytes);
    return archive_->view(member_.offset + offset, bytes);
  }

 private:
  void check(uint64_t offset, uint64_t bytes) const {
    if (offset <= member_.bytes && bytes <= member_.bytes - offset) return;
    fail(ErrorKind::corrupt, "{}: {} bytes at byte {} are not in it; it has {}", path_, bytes,
         offset, member_.bytes);
  }

  std::string path_;
  std::shared_ptr<const ReadableFile> archive_;
  TarMember member_;
};

class TarFileSystem : public ForwardingFileSystem {
 public:
  TarFileSystem(std::shared_ptr<const FileSystem> files, std::string path)
      : ForwardingFileSystem(files), archive_(std::move(path)), file_(files->open(archive_)) {
    folders_[""];
    for (TarMember& member : read_tar(*file_)) add(std::move(member));
    for (const auto& [name, member] : members_) {
      if (!folders_.contains(name)) continue;
      fail(ErrorKind::corrupt, "{}: tar archive: {} is a file and a folder", archive_, name);
    }
  }

  PathStatus status(const std::string& path) const override {
    const auto inside = name_of(path);
    if (!inside) return ForwardingFileSystem::status(path);
    PathStatus status = ForwardingFileSystem::status(archive_);
    status.kind = PathKind::missing;
    if (const auto member = members_.find(*inside); member != members_.end()) {
      status.kind = PathKind::file;
      status.bytes = member->second.bytes;
    } else if (folders_.contains(*inside)) {
      status.kind = PathKind::folder;
    }
    return status;
  }

  std::vector<std::string> list(const std::string& path) const override {
    const auto inside = name_of(path);
    if (!inside) return ForwardingFileSystem::list(path);
    const auto folder = folders_.find(*inside);
    if (folder == folders_.end()) fail(ErrorKind::not_found, "{}: is not a folder", path);
    return {folder->second.begin(), folder->second.end()};
  }

  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    const auto inside = name_of(path);
    return inside ? member_file(path, *inside, file_) : ForwardingFileSystem::open(path);
  }

  std::shared_ptr<const ReadableFile> map(const std::string& path) const override {
    const auto inside = name_of(path);
    if (!inside) return ForwardingFileSystem::map(path);
    return member_file(path, *inside, ForwardingFileSystem::map(archive_));
  }

  // The archive's, for a member.
  std::unique_ptr<LockableFile> open_lockable(const std::string& path,
                                              LockMode strongest) const override {
    return ForwardingFileSystem::open_lockable(name_of(path) ? archive_ : path, strongest);
  }

 private:
  // What a path is called in the archive, "" for the archive itself; nothing outside of it.
  std::optional<std::string> name_of(const std::string& path) const {
    if (path == archive_) return "";
    const bool below = path.starts_with(archive_) && path[archive_.size()] == '/';
    return below ? std::optional(path.substr(archive_.size() + 1)) : std::nullopt;
  }

  std::shared_ptr<const ReadableFile> member_file(
      const std::string& path, const std::string& name,
      std::shared_ptr<const ReadableFile> archive) const {
    const auto member = members_.find(name);
    if (member == members_.end()) fail(ErrorKind::not_found, "{}: no such member", path);
    return std::make_shared<TarMemberFile>(path, std::move(archive), member->second);
  }

  void add(TarMember member) {
    for (std::string name = member.name; !name.empty();) {
      const size_t slash = name.rfind('/');
      const std::string folder = slash == std::string::npos ? "" : name.substr(0, slash);
      folders_[folder].insert(slash == std::string::npos ? name : name.substr(slash + 1));
      name = folder;
    }
    const std::string name = member.name;
    members_.emplace(name, std::move(member));
  }

  const std::string archive_;
  std::shared_ptr<const ReadableFile> file_;
  std::map<std::string, TarMember> members_;
  std::map<std::string, std::set<std::string>> folders_;  // and what is in them
};

}  // namespace

std::shared_ptr<const FileSystem> tar_file_system(std::shared_ptr<const FileSystem> inner,
                                                  const std::string& path) {
  return std::make_shared<TarFileSystem>(std::move(inner), path);
}

}  // namespace ferry
