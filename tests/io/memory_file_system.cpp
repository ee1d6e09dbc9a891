#include "tests/io/memory_file_system.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

struct Content {
  mutable std::mutex mutex;
  std::string bytes;
  int64_t changed_seconds = 0;
  int shared_locks = 0;
  bool exclusive_lock = false;

  void read(const std::string& path, uint64_t offset, std::span<std::byte> into) const {
    const std::lock_guard lock(mutex);
    if (offset > bytes.size() || into.size() > bytes.size() - offset) {
      fail(ErrorKind::corrupt, "{} ends at byte {} where {} bytes from {} were expected", path,
           bytes.size(), into.size(), offset);
    }
    bytes.copy(reinterpret_cast<char*>(into.data()), into.size(), offset);
  }
};

class MemoryReadableFile final : public ReadableFile {
 public:
  MemoryReadableFile(std::string path, std::shared_ptr<Content> content)
      : path_(std::move(path)), content_(std::move(content)), bytes_(content_->bytes.size()) {}

  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return bytes_; }

  void read(uint64_t offset, std::span<std::byte> into) const override {
    content_->read(path_, offset, into);
  }

 private:
  std::string path_;
  std::shared_ptr<Content> content_;
  uint64_t bytes_;
};

class MemoryWritableFile final : public WritableFile {
 public:
  MemoryWritableFile(std::string path, std::shared_ptr<Content> content)
      : path_(std::move(path)), content_(std::move(content)) {}

  const std::string& path() const noexcept override { return path_; }

  void write(uint64_t offset, std::span<const std::byte> from) override {
    const std::lock_guard lock(content_->mutex);
    std::string& bytes = content_->bytes;
    bytes.resize(std::max<size_t>(bytes.size(), offset + from.size()));
    std::ranges::copy(from, reinterpret_cast<std::byte*>(bytes.data()) + offset);
  }

  void read(uint64_t offset, std::span<std::byte> into) const override {
    content_->read(path_, offset, into);
  }

  void sync() override {}

 private:
  std::string path_;
  std::shared_ptr<Content> content_;
};

class MemoryAppendableFile final : public AppendableFile {
 public:
  MemoryAppendableFile(std::string path, std::shared_ptr<Content> content)
      : path_(std::move(path)), content_(std::move(content)) {}

  const std::string& path() const noexcept override { return path_; }
  void append(std::span<const std::byte> from) override {
    const std::lock_guard lock(content_->mutex);
    content_->bytes.append(reinterpret_cast<const char*>(from.data()), from.size());
  }
  std::optional<std::byte> last_byte() const override {
    const std::lock_guard lock(content_->mutex);
    if (content_->bytes.empty()) return std::nullopt;
    return static_cast<std::byte>(content_->bytes.back());
  }
  void sync() override {}

 private:
  std::string path_;
  std::shared_ptr<Content> content_;
};

class MemoryLockableFile final : public LockableFile {
 public:
  MemoryLockableFile(std::shared_ptr<Content> content, std::function<bool(const Content*)> at_path)
      : content_(std::move(content)), at_path_(std::move(at_path)) {}
  ~MemoryLockableFile() override {
    const std::lock_guard guard(content_->mutex);
    drop();
  }

  LockState lock(LockMode mode) override {
    const std::lock_guard guard(content_->mutex);
    if (is_taken(mode)) return LockState::busy;
    drop();
    held_ = mode;
    if (mode == LockMode::shared) {
      ++content_->shared_locks;
    } else {
      content_->exclusive_lock = true;
    }
    return LockState::taken;
  }

  LockState probe(LockMode mode) const override {
    const std::lock_guard guard(content_->mutex);
    return is_taken(mode) ? LockState::busy : LockState::taken;
  }

  bool still_at_path() const override { return at_path_(content_.get()); }

 private:
  bool is_taken(LockMode mode) const {
    const int others = content_->shared_locks - (held_ == LockMode::shared ? 1 : 0);
    if (content_->exclusive_lock && held_ != LockMode::exclusive) return true;
    return mode == LockMode::exclusive && others > 0;
  }
  void drop() {
    if (held_ == LockMode::shared) --content_->shared_locks;
    if (held_ == LockMode::exclusive) content_->exclusive_lock = false;
    held_.reset();
  }

  std::shared_ptr<Content> content_;
  std::function<bool(const Content*)> at_path_;
  std::optional<LockMode> held_;
};

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool is_below(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

}  // namespace

struct MemoryFileSystem::State {
  mutable std::mutex mutex;
  std::map<std::string, std::shared_ptr<Content>> files;
  std::set<std::string> folders{""};
  int64_t clock = 0;

  PathKind kind(const std::string& path) const {
    if (path == "." || path == "/") return PathKind::folder;
    if (files.contains(path)) return PathKind::file;
    return folders.contains(path) ? PathKind::folder : PathKind::missing;
  }

  void require_parent(const std::string& path) const {
    if (kind(parent_of(path)) != PathKind::folder)
      fail(ErrorKind::not_found, "{}: no such folder", parent_of(path));
    if (kind(path) != PathKind::missing) fail(ErrorKind::invalid, "{} exists already", path);
  }

  void remove(const std::string& path) {
    const auto goes = [&](const std::string& each) { return each == path || is_below(each, path); };
    std::erase_if(files, [&](const auto& file) { return goes(file.first); });
    std::erase_if(folders, goes);
  }

  // Moves a path and all below it, in both tables.
  void move(const std::string& from, const std::string& to) {
    const auto renamed = [&](const std::string& path) { return to + path.substr(from.size()); };
    const auto moves = [&](const std::string& path) {
      return path == from || is_below(path, from);
    };
    std::map<std::string, std::shared_ptr<Content>> new_files;
    for (auto& [path, content] : files)
      new_files.emplace(moves(path) ? renamed(path) : path, content);
    std::set<std::string> new_folders;
    for (const std::string& path : folders) new_folders.insert(moves(path) ? renamed(path) : path);
    files = std::move(new_files);
    folders = std::move(new_folders);
  }
};

MemoryFileSystem::MemoryFileSystem() : state_(std::make_unique<State>()) {}
MemoryFileSystem::~MemoryFileSystem() = default;

void MemoryFileSystem::put(const std::string& path, std::string content) {
  const std::lock_guard lock(state_->mutex);
  for (std::string folder = parent_of(path); !folder.empty(); folder = parent_of(folder)) {
    state_->folders.insert(folder);
  }
  auto stored = std::make_shared<Content>();
  stored->bytes = std::move(content);
  stored->changed_seconds = state_->clock;
  state_->files[path] = std::move(stored);
}

std::string MemoryFileSystem::get(const std::string& path) const {
  return read_file(*this, path, UINT64_MAX);
}

void MemoryFileSystem::set_clock(int64_t seconds) {
  const std::lock_guard lock(state_->mutex);
  state_->clock = seconds;
}

PathStatus MemoryFileSystem::status(const std::string& path) const {
  const std::lock_guard lock(state_->mutex);
  const PathKind kind = state_->kind(path);
  if (kind != PathKind::file) return {kind};
  const Content& content = *state_->files.at(path);
  return {kind, content.bytes.size(), content.changed_seconds};
}

std::vector<std::string> MemoryFileSystem::list(const std::string& given) const {
  const std::string path = given == "." ? "" : given;
  const std::lock_guard lock(state_->mutex);
  if (state_->kind(path) != PathKind::folder)
    fail(ErrorKind::not_found, "{}: no such folder", path);
  std::vector<std::string> names;
  const auto add = [&](const std::string& child) {
    if (child != path && parent_of(child) == path)
      names.push_back(child.substr(path.empty() ? 0 : path.size() + 1));
  };
  for (const auto& [file, content] : state_->files) add(file);
  for (const std::string& folder : state_->folders) add(folder);
  std::sort(names.begin(), names.end());
  return names;
}

std::shared_ptr<const ReadableFile> MemoryFileSystem::open(const std::string& path) const {
  const std::lock_guard lock(state_->mutex);
  const PathKind kind = state_->kind(path);
  if (kind == PathKind::missing) fail(ErrorKind::not_found, "cannot open {}: no such file", path);
  if (kind != PathKind::file) fail(ErrorKind::invalid, "{} is not a regular file", path);
  return std::make_shared<MemoryReadableFile>(path, state_->files.at(path));
}

std::unique_ptr<WritableFile> MemoryFileSystem::create(const std::string& path,
                                                       uint64_t bytes) const {
  const std::lock_guard lock(state_->mutex);
  state_->require_parent(path);
  auto content = std::make_shared<Content>();
  content->bytes.resize(bytes);
  content->changed_seconds = state_->clock;
  state_->files[path] = content;
  return std::make_unique<MemoryWritableFile>(path, content);
}

std::unique_ptr<WritableFile> MemoryFileSystem::open_to_write(const std::string& path) const {
  const std::lock_guard lock(state_->mutex);
  if (state_->kind(path) != PathKind::file) fail(ErrorKind::not_found, "no file {}", path);
  return std::make_unique<MemoryWritableFile>(path, state_->files.at(path));
}

std::unique_ptr<AppendableFile> MemoryFileSystem::open_to_append(const std::string& path) const {
  const std::lock_guard lock(state_->mutex);
  if (state_->kind(path) != PathKind::file) fail(ErrorKind::not_found, "no file {}", path);
  return std::make_unique<MemoryAppendableFile>(path, state_->files.at(path));
}

void MemoryFileSystem::create_folder(const std::string& path) const {
  const std::lock_guard lock(state_->mutex);
  state_->require_parent(path);
  state_->folders.insert(path);
}

void MemoryFileSystem::rename(const std::string& from, const std::string& to) const {
  const std::lock_guard lock(state_->mutex);
  if (state_->kind(from) == PathKind::missing)
    fail(ErrorKind::not_found, "cannot rename {}: missing", from);
  state_->require_parent(to);
  state_->move(from, to);
}

void MemoryFileSystem::replace(const std::string& from, const std::string& to) const {
  const std::lock_guard lock(state_->mutex);
  if (state_->kind(from) != PathKind::file || state_->kind(to) == PathKind::folder)
    fail(ErrorKind::not_found, "cannot rename {} to {}: not files", from, to);
  state_->remove(to);
  state_->require_parent(to);
  state_->move(from, to);
}

void MemoryFileSystem::exchange(const std::string& a, const std::string& b) const {
  const std::lock_guard lock(state_->mutex);
  for (const std::string& path : {a, b}) {
    if (state_->kind(path) == PathKind::missing)
      fail(ErrorKind::not_found, "cannot exchange {}: missing", path);
  }
  const std::string aside = a + ".exchange";
  state_->move(a, aside);
  state_->move(b, a);
  state_->move(aside, b);
}

void MemoryFileSystem::remove_all(const std::string& path) const {
  const std::lock_guard lock(state_->mutex);
  state_->remove(path);
}

void MemoryFileSystem::sync_folder(const std::string& path) const {
  if (status(path).kind != PathKind::folder) fail(ErrorKind::not_found, "{}: no such folder", path);
}

std::unique_ptr<LockableFile> MemoryFileSystem::open_lockable(const std::string& path,
                                                              LockMode) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->files.find(path);
  if (found == state_->files.end())
    fail(ErrorKind::not_found, "cannot open {}: no such file", path);
  const auto at_path = [this, path](const Content* content) {
    const std::lock_guard guard(state_->mutex);
    const auto file = state_->files.find(path);
    return file != state_->files.end() && file->second.get() == content;
  };
  return std::make_unique<MemoryLockableFile>(found->second, at_path);
}

uint64_t MemoryFileSystem::copy(const ReadableFile&, uint64_t, WritableFile&, uint64_t, uint64_t,
                                KernelCopy) const {
  return 0;
}

}  // namespace ferry
