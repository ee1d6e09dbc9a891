#include "tests/io/fault_file_system.h"

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
  void close() override { inner_->close(); }
  WritableFile& inner() noexcept { return *inner_; }

 private:
  const FaultFileSystem& owner_;
  std::unique_ptr<WritableFile> inner_;
};

FaultFileSystem::FaultFileSystem(std::shared_ptr<const FileSystem> inner, uint64_t fail_at,
                                 ErrorKind kind, bool stays_broken)
    : FaultFileSystem(
          std::move(inner), fail_at,
          [kind](const std::string& message) { fail(kind, "{}", message); }, stays_broken) {}

FaultFileSystem::FaultFileSystem(std::shared_ptr<const FileSystem> inner, uint64_t fail_at,
                                 Fault fault, bool stays_broken)
    : ForwardingFileSystem(std::move(inner)),
      fail_at_(fail_at),
      fault_(std::move(fault)),
      stays_broken_(stays_broken) {}

void FaultFileSystem::count(const char* operation, const std::string& path) const {
  const uint64_t number = ++*count_;
  if (fail_at_ == 0 || number < fail_at_ || (number > fail_at_ && !stays_broken_)) return;
  fault_(fmt::format("cannot {} {}: injected fault at operation {}", operation, path, number));
}

std::unique_ptr<WritableFile> FaultFileSystem::create(const std::string& path,
                                                      uint64_t bytes) const {
  count("create", path);
  return std::make_unique<File>(*this, inner().create(path, bytes));
}

std::unique_ptr<WritableFile> FaultFileSystem::open_to_write(const std::string& path) const {
  count("open to write", path);
  return std::make_unique<File>(*this, inner().open_to_write(path));
}

void FaultFileSystem::create_folder(const std::string& path) const {
  count("create folder", path);
  inner().create_folder(path);
}

void FaultFileSystem::rename(const std::string& from, const std::string& to) const {
  count("rename", from);
  inner().rename(from, to);
}

void FaultFileSystem::replace(const std::string& from, const std::string& to) const {
  count("rename", from);
  inner().replace(from, to);
}

void FaultFileSystem::exchange(const std::string& a, const std::string& b) const {
  count("exchange", a);
  inner().exchange(a, b);
}

void FaultFileSystem::sync_folder(const std::string& path) const {
  count("flush folder", path);
  inner().sync_folder(path);
}

uint64_t FaultFileSystem::copy(const ReadableFile& from, uint64_t from_offset, WritableFile& to,
                               uint64_t to_offset, uint64_t length, KernelCopy when) const {
  count("copy to", to.path());
  auto* file = dynamic_cast<File*>(&to);
  return inner().copy(from, from_offset, file ? file->inner() : to, to_offset, length, when);
}

}  // namespace ferry
