#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "ckpt/base/error.h"
#include "ckpt/io/file_system.h"
#include "ckpt/io/open_file_limit.h"
#include "ckpt/io/page_writer.h"
#include "ckpt/io/posix_descriptor.h"
#include "ckpt/io/posix_files.h"

namespace ferry {
namespace {

// False on file systems that compress what they store, that share blocks among files, or that stand
// before another one which may do so.
bool stores_as_it_is(const struct statfs& info) {
  switch (static_cast<uint32_t>(info.f_type)) {
    case 0xef53:      // ext2, 3, 4
    case 0x58465342:  // xfs: what is reserved is not shared
    case 0x01021994:  // tmpfs
    case 0x858458f6:  // ramfs
    case 0xf2f52010:  // f2fs
    case 0x0bd00bd0:  // lustre
    case 0x47504653:  // gpfs
    case 0x19830326:  // beegfs
      return true;
    default:
      return false;
  }
}

class PosixFileSystem final : public FileSystem {
 public:
  explicit PosixFileSystem(const PosixOptions& options) : options_(options) {}

  PathStatus status(const std::string& path) const override {
    struct stat info {};
    int code = ::lstat(path.c_str(), &info);
    const bool link = code == 0 && S_ISLNK(info.st_mode);
    if (link) code = ::stat(path.c_str(), &info);
    if (code != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return {PathKind::missing, 0, 0, link};
      fail_errno("stat", path);
    }
    const int64_t changed = info.st_mtim.tv_sec;
    if (S_ISREG(info.st_mode)) {
      return {PathKind::file, static_cast<uint64_t>(info.st_size), changed, link};
    }
    return {S_ISDIR(info.st_mode) ? PathKind::folder : PathKind::other, 0, changed, link};
  }

  std::string real_path(const std::string& path) const override {
    std::error_code code;
    const auto real = std::filesystem::canonical(path, code);
    return code ? path : real.string();
  }

  std::vector<std::string> list(const std::string& path) const override {
    DIR* folder = ::opendir(path.c_str());
    if (!folder) fail_errno("list", path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* item = ::readdir(folder)) {
      const std::string name = item->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    const int code = errno;
    ::closedir(folder);
    if (code != 0) {
      errno = code;
      fail_errno("list", path);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    return open_file(path);
  }

  std::shared_ptr<const ReadableFile> map(const std::string& path) const override {
    return std::make_shared<PosixMappedFile>(*open_file(path));
  }

  std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const override {
    const int descriptor = uninterrupted(
        [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
    if (descriptor < 0) fail_errno("create", path);
    auto file = make_file(path, descriptor);
    file->reserve(bytes);
    return file;
  }

  std::unique_ptr<WritableFile> open_to_write(const std::string& path) const override {
    const int descriptor = uninterrupted(
        [&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW); });
    if (descriptor < 0) fail_errno("open", path);
    return make_file(path, descriptor);
  }

  std::unique_ptr<AppendableFile> open_to_append(const std::string& path) const override {
    const int descriptor = uninterrupted([&] {
      return ::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    });
    if (descriptor < 0) fail_errno("open", path);
    return std::make_unique<PosixAppendableFile>(path, descriptor);
  }

  std::optional<FreeSpace> free_space(const std::string& folder) const override {
    struct statfs info {};
    int result = 0;
    while ((result = ::statfs(folder.c_str(), &info)) != 0 && errno == EINTR) {
    }
    if (result != 0 || info.f_blocks == 0) return std::nullopt;  // 0: no limit, or unknown
    const auto block = static_cast<uint64_t>(info.f_frsize > 0 ? info.f_frsize : info.f_bsize);
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(info.f_bavail), block, &bytes)) {
      return std::nullopt;
    }
    return FreeSpace{bytes, stores_as_it_is(info)};
  }

  bool may_create_in(const std::string& folder) const override {
    return ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
  }

  void create_folder(const std::string& path) const override {
    if (::mkdir(path.c_str(), 0777) != 0) {
      if (errno == EEXIST) fail_there(path);
      fail_errno("create folder", path);
    }
  }

  void rename(const std::string& from, const std::string& to) const override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
    if (errno == EEXIST) fail(ErrorKind::invalid, "cannot rename {}: {} exists already", from, to);
    if (errno != EINVAL && errno != ENOSYS) fail_errno("rename", from);
    rename_without_flags(from, to);
  }

  void replace(const std::string& from, const std::string& to) const override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_errno("rename", from);
  }

  void exchange(const std::string& a, const std::string& b) const override {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return;
    if (errno == EINVAL || errno == ENOSYS) {
      fail(ErrorKind::unsupported, "the file system of {} cannot exchange two paths", a);
    }
    fail_errno("exchange", a);
  }

  void remove_all(const std::string& path) const override {
    std::error_code code;
    do {
      std::filesystem::remove_all(path, code);
    } while (code.value() == EINTR);
    if (code) {
      errno = code.value();
      fail_errno("remove", path);
    }
  }

  void sync_folder(const std::string& path) const override {
    const Descriptor folder(
        uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (folder.get() < 0) fail_errno("open folder", path);
    // EINVAL: a file system whose folders need no flush.
    if (uninterrupted([&] { return ::fsync(folder.get()); }) != 0 && errno != EINVAL)
      fail_errno("flush folder", path);
  }

  std::unique_ptr<LockableFile> open_lockable(const std::string& path,
                                              LockMode strongest) const override {
    return open_posix_lockable(path, strongest);
  }

  uint64_t copy(const ReadableFile& from, uint64_t from_offset, WritableFile& to,
                uint64_t to_offset, uint64_t length, KernelCopy when) const override {
    const auto* source = dynamic_cast<const PosixReadableFile*>(&from);
    auto* target = dynamic_cast<PosixWritableFile*>(&to);
    if (!source || !target) return 0;
    if (when == KernelCopy::where_shared && !target->shares_blocks()) return 0;
    auto in = static_cast<off_t>(from_offset);
    auto out = static_cast<off_t>(to_offset);
    uint64_t done = 0;
    while (done < length) {
      const ssize_t n = ::copy_file_range(source->descriptor(), &in, target->descriptor(), &out,
                                          length - done, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO))
        fail_errno("write", to.path());
      if (n <= 0) break;  // the caller reads and writes the rest, and meets any real error there
      done += static_cast<uint64_t>(n);
    }
    return done;
  }

 private:
  // The error for what cannot be created because something has its name.
  [[noreturn]] void fail_there(const std::string& path) const {
    const PathStatus found = status(path);
    if (found.link && found.kind == PathKind::missing) {
      fail(ErrorKind::invalid,
           "{} is a link to something that does not exist; make that, or remove the link", path);
    }
    fail(ErrorKind::invalid, "{} exists already", path);
  }

  std::shared_ptr<const PosixReadableFile> open_file(const std::string& path) const {
    // O_NONBLOCK: opening a FIFO must not wait for its writer. It has no effect on regular files.
    const int descriptor =
        uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
    if (descriptor < 0) fail_errno("open", path);
    struct stat info {};
    if (::fstat(descriptor, &info) != 0) {
      ::close(descriptor);
      fail_errno("stat", path);
    }
    if (!S_ISREG(info.st_mode)) {
      ::close(descriptor);
      fail(ErrorKind::invalid, "{} is not a regular file", path);
    }
    return std::make_shared<PosixReadableFile>(path, descriptor,
                                               static_cast<uint64_t>(info.st_size));
  }

  // For a file system without RENAME_NOREPLACE (NFS and other network ones). A hard link is refused
  // in one step when the name is taken; where there are none, and for folders, the check is not
  // atomic (a folder that is not empty is never replaced).
  void rename_without_flags(const std::string& from, const std::string& to) const {
    if (::link(from.c_str(), to.c_str()) == 0) {
      if (::unlink(from.c_str()) != 0) fail_errno("rename", from);
      return;
    }
    if (errno == EEXIST || status(to).kind != PathKind::missing) {
      fail(ErrorKind::invalid, "cannot rename {}: {} exists already", from, to);
    }
    if (::rename(from.c_str(), to.c_str()) != 0) fail_errno("rename", from);
  }

  std::unique_ptr<PosixWritableFile> make_file(const std::string& path, int descriptor) const {
    return std::make_unique<PosixWritableFile>(path, descriptor, pages_for(descriptor),
                                               options_.page_writes == PageWrites::always);
  }

  // What writes pages of the file that a descriptor leads to; null where write() does all. Opened
  // when first needed, and again in a forked process.
  std::shared_ptr<PageWriter> pages_for(int descriptor) const {
    if (options_.page_writes == PageWrites::never || !PageWriter::takes(descriptor)) return nullptr;
    const std::lock_guard lock(mutex_);
    if (opener_ != ::getpid()) {
      opener_ = ::getpid();
      pages_ = PageWriter::open();
    }
    return pages_;
  }

  const PosixOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  mutable pid_t opener_ = 0;
  mutable std::shared_ptr<PageWriter> pages_;
};

}  // namespace

size_t most_open_files() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return limit.rlim_cur;
}

std::shared_ptr<const FileSystem> posix_file_system(const PosixOptions& options) {
  return std::make_shared<PosixFileSystem>(options);
}

}  // namespace ferry
