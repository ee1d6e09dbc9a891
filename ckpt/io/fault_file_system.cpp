#include "ckpt/io/fault_file_system.h"

namespace ferry {

// A file whose writes and syncs count as operations of the file system, which must outlive it.
class FaultFileSystem::File final : public WritableFile {
 public:
  File(const FaultFileSystem& owner, std::unique_ptr<WritableFile> inner)
      : owner_(owner), inner_(std::move(inner)) {}

  const std::string& path() const noexcept override { return inner_->path(); }
  void write(uint64_t offset, std::span<const std::byte> from) override {
    owner_.count("write", path());
    inner_->write(offset, from);
  }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    inner_->read(offset, into);
  }
  void sync() override {
    owner_.count("flush to disk", path());
    inner_->sync();
  }
  WritableFile& inner() noexcept { return *inner_; }

 private:
  const FaultFileSystem& owner_;
  std::unique_ptr<WritableFile> inner_;
};

FaultFileSystem::FaultFileSystem(std::shared_ptr<const FileSystem> inner, uint64_t fail_at,
                                 ErrorKind kind, bool stays_broken)
    : inner_(std::move(inner)), fail_at_(fail_at), kind_(kind), stays_broken_(stays_broken) {}

void FaultFileSystem::count(const char* operation, const std::string& path) const {
  const uint64_t number = ++*count_;
  if (fail_at_ == 0 || number < fail_at_ || (number > fail_at_ && !stays_broken_)) return;
  fail(kind_, "cannot {} {}: injected fault at operation {}", operation, path, number);
}

PathStatus FaultFileSystem::status(const std::string& path) const { return inner_->status(path); }

std::vector<std::string> FaultFileSystem::list(const std::string& path) const {
  return inner_->list(path);
}

std::shared_ptr<const ReadableFile> FaultFileSystem::open(const std::string& path) const {
  return inner_->open(path);
}

std::unique_ptr<WritableFile> FaultFileSystem::create(const std::string& path,
                                                      uint64_t bytes) const {
  count("create", path);
  return std::make_unique<File>(*this, inner_->create(path, bytes));
}

std::unique_ptr<WritableFile> FaultFileSystem::open_to_write(const std::string& path) const {
  count("open to write", path);
  return std::make_unique<File>(*this, inner_->open_to_write(path));
}

void FaultFileSystem::create_folder(const std::string& path) const {
  count("create folder", path);
  inner_->create_folder(path);
}

void FaultFileSystem::rename(const std::string& from, const std::string& to) const {
  count("rename", from);
  inner_->rename(from, to);
}

void FaultFileSystem::replace(const std::string& from, const std::string& to) const {
  count("rename", from);
  inner_->replace(from, to);
}

void FaultFileSystem::exchange(const std::string& a, const std::string& b) const {
  count("exchange", a);
  inner_->exchange(a, b);
}

void FaultFileSystem::remove_all(const std::string& path) const { inner_->remove_all(path); }

void FaultFileSystem::sync_folder(const std::string& path) const {
  count("flush folder", path);
  inner_->sync_folder(path);
}

std::unique_ptr<LockableFile> FaultFileSystem::open_lockable(const std::string& path,
                                                             LockMode strongest) const {
  return inner_->open_lockable(path, strongest);
}

uint64_t FaultFileSystem::copy(const ReadableFile& from, uint64_t from_offset, WritableFile& to,
                               uint64_t to_offset, uint64_t length) const {
  count("copy to", to.path());
  auto* file = dynamic_cast<File*>(&to);
  return inner_->copy(from, from_offset, file ? file->inner() : to, to_offset, length);
}

}  // namespace ferry
