#include "ckpt/io/posix_descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// One byte far after the end of any file: where a server makes locks mandatory (SMB), it hinders
// nobody's reads and writes.
constexpr off_t kLockedByte = off_t{1} << 62;

// Locks of an open file description (F_OFD_*): threads of one process exclude each other, and
// closing another descriptor of the file drops nothing, as it does with the locks of POSIX.
class PosixLockableFile final : public LockableFile {
 public:
  PosixLockableFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  LockState lock(LockMode mode) override {
    struct flock request = request_for(mode);
    if (uninterrupted([&] { return ::fcntl(descriptor_.get(), F_OFD_SETLK, &request); }) == 0)
      return LockState::taken;
    return errno == EAGAIN || errno == EACCES ? LockState::busy : LockState::unsupported;
  }

  LockState probe(LockMode mode) const override {
    struct flock request = request_for(mode);
    if (uninterrupted([&] { return ::fcntl(descriptor_.get(), F_OFD_GETLK, &request); }) != 0)
      return LockState::unsupported;
    return request.l_type == F_UNLCK ? LockState::taken : LockState::busy;
  }

  bool still_at_path() const override {
    struct stat own {
    }, there{};
    if (::fstat(descriptor_.get(), &own) != 0 || ::stat(path_.c_str(), &there) != 0) return false;
    return own.st_dev == there.st_dev && own.st_ino == there.st_ino;
  }

 private:
  static struct flock request_for(LockMode mode) {
    struct flock request {};
    request.l_type = mode == LockMode::shared ? F_RDLCK : F_WRLCK;
    request.l_whence = SEEK_SET;
    request.l_start = kLockedByte;
    request.l_len = 1;
    return request;
  }

  std::string path_;
  Descriptor descriptor_;
};

}  // namespace

Descriptor::~Descriptor() {
  if (value_ >= 0) ::close(value_);
}

void fail_errno(const char* action, const std::string& path) {
  const int code = errno;
  ErrorKind kind = ErrorKind::io;
  const char* hint = "";
  switch (code) {
    case ENOENT:
    case ENOTDIR:
      kind = ErrorKind::not_found;
      break;
    case ENOSPC:
    case EDQUOT:
      kind = ErrorKind::exhausted;
      hint = "; free space or choose another target";
      break;
    case EFBIG:
      kind = ErrorKind::exhausted;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      hint = "; check the permissions of the path";
      break;
    default:
      break;
  }
  Error error(kind, fmt::format("cannot {} {}: {}{}", action, path, std::strerror(code), hint));
  error.set_path(path);
  throw error;
}

std::unique_ptr<LockableFile> open_posix_lockable(const std::string& path, LockMode strongest) {
  const int access = strongest == LockMode::exclusive ? O_RDWR : O_RDONLY;
  const int descriptor = uninterrupted(
      [&] { return ::open(path.c_str(), access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
  if (descriptor < 0) fail_errno("open", path);
  return std::make_unique<PosixLockableFile>(path, descriptor);
}

}  // namespace ferry
