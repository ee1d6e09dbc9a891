#include "ckpt/engine/target_files.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <deque>
#include <mutex>
#include <shared_mutex>
#include <type_traits>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/io/open_file_limit.h"

namespace ferry {

// Which files are open: as many as there is room for, and those in use.
class TargetFiles::OpenFiles {
 public:
  // Sources, what they decode to, and the caller need descriptors, too.
  explicit OpenFiles(const FileSystem& files)
      : file_system(files), most_(std::max<size_t>(1, most_open_files() / 4)) {}

  void add(const File& file) {
    const std::lock_guard lock(mutex_);
    files_.push_back(&file);
  }
  /// Closes files that were not used lately until another one has room, or all are in use.
  void make_room();

  const FileSystem& file_system;

 private:
  size_t most_;
  std::mutex mutex_;
  std::deque<const File*> files_;  // in the order of search
};

// A file that is open at least while it is used.
class TargetFiles::File final : public WritableFile {
 public:
  File(std::string path, OpenFiles& open_files) : path_(std::move(path)), open_files_(open_files) {}

  const std::string& path() const noexcept override { return path_; }
  void write(uint64_t offset, std::span<const std::byte> from) override {
    use([&](WritableFile& file) { file.write(offset, from); });
  }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    use([&](WritableFile& file) { file.read(offset, into); });
  }
  void sync() override {
    use([](WritableFile& file) { file.sync(); });
  }
  uint64_t copy(const FileSystem& file_system, const ReadableFile& from, uint64_t from_offset,
                uint64_t to_offset, uint64_t length, KernelCopy when) {
    return use([&](WritableFile& file) {
      return file_system.copy(from, from_offset, file, to_offset, length, when);
    });
  }

  void create(uint64_t bytes) {
    open_files_.make_room();
    const std::lock_guard lock(mutex_);
    keep(open_files_.file_system.create(path_, bytes));
  }
  /// True once it was created or used.
  bool is_touched() const noexcept { return touched_; }

  /// False when it is in use, or was since it was asked last.
  bool close_if_idle() const {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || recent_.exchange(false)) return false;
    const std::unique_ptr<WritableFile> file = std::move(file_);
    file->close();
    return true;
  }

 private:
  template <typename Work>
  std::invoke_result_t<Work, WritableFile&> use(const Work& work) const {
    {
      const std::shared_lock lock(mutex_);
      if (file_) {
        recent_ = true;
        return work(*file_);
      }
    }
    open_files_.make_room();
    const std::lock_guard lock(mutex_);
    if (!file_) keep(open_files_.file_system.open_to_write(path_));
    recent_ = true;
    return work(*file_);
  }

  void keep(std::unique_ptr<WritableFile> file) const {
    file_ = std::move(file);
    touched_ = true;
    open_files_.add(*this);
  }

  std::string path_;
  OpenFiles& open_files_;
  mutable std::shared_mutex mutex_;  // exclusive to open and to close
  mutable std::unique_ptr<WritableFile> file_;
  mutable std::atomic<bool> recent_{false};
  mutable std::atomic<bool> touched_{false};
};

// Without a sync, which the end has for all: a file may come and go many times. What the system
// could not write meanwhile is reported by the next sync of the file.
void TargetFiles::OpenFiles::make_room() {
  const std::lock_guard lock(mutex_);
  for (size_t tries = 2 * files_.size(); files_.size() >= most_ && tries > 0; --tries) {
    const File* file = files_.front();
    files_.pop_front();
    if (!file->close_if_idle()) files_.push_back(file);
  }
}

TargetFiles::TargetFiles(const Plan& plan, const FileSystem& file_system, const std::string& folder,
                         TargetMode mode, const EngineOptions& options)
    : options_(options), open_files_(std::make_unique<OpenFiles>(file_system)) {
  for (const FileInfo& file : plan.target.files) {
    owners_.push_back(std::make_unique<File>(join(folder, file.path), *open_files_));
    files_.push_back(owners_.back().get());
  }
  if (mode == TargetMode::open) return;
  // Reserving space takes time where it gives memory (tmpfs) or asks a server.
  for_each([&](size_t i) {
    owners_[i]->create(mode == TargetMode::create ? plan.target.files[i].bytes : 0);
  });
}

TargetFiles::~TargetFiles() = default;

uint64_t TargetFiles::copy(const FileSystem& file_system, const ReadableFile& from,
                           uint64_t from_offset, WritableFile& to, uint64_t to_offset,
                           uint64_t length, KernelCopy when) {
  if (auto* file = dynamic_cast<File*>(&to)) {
    return file->copy(file_system, from, from_offset, to_offset, length, when);
  }
  return file_system.copy(from, from_offset, to, to_offset, length, when);
}

void TargetFiles::sync() {
  for_each([&](size_t i) {
    if (owners_[i]->is_touched()) owners_[i]->sync();
  });
}

// On several threads.
void TargetFiles::for_each(const std::function<void(size_t)>& work) const {
  std::atomic<size_t> next{0};
  const int most = static_cast<int>(std::min<size_t>(files_.size(), INT_MAX));
  on_threads(std::min(thread_count(options_.threads), most), [&](int, const auto& stop) {
    for (size_t i = next++; i < files_.size() && !stop; i = next++) {
      if (options_.cancel && *options_.cancel) fail(ErrorKind::cancelled, "stopped on request");
      work(i);
    }
  });
}

}  // namespace ferry
