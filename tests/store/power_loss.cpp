#include "tests/store/power_loss.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "ckpt/base/error.h"

namespace ferry::test {
namespace {

struct Node;
using NodePtr = std::shared_ptr<Node>;
using Entries = std::map<std::string, NodePtr>;

struct Node {
  bool folder = false;
  std::string written, synced;      // of a file
  std::vector<Entries> states{{}};  // of a folder; the last is the present
  int shared = 0;
  bool exclusive = false;

  Entries& change() {
    states.push_back(states.back());
    return states.back();
  }
};

void read_bytes(const std::string& bytes, uint64_t offset, std::span<std::byte> into) {
  if (offset > bytes.size() || into.size() > bytes.size() - offset) {
    fail(ErrorKind::corrupt, "the file ends at byte {}", bytes.size());
  }
  std::memcpy(into.data(), bytes.data() + offset, into.size());
}

class Readable final : public ReadableFile {
 public:
  Readable(std::string path, NodePtr node) : path_(std::move(path)), node_(std::move(node)) {}
  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return node_->written.size(); }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    read_bytes(node_->written, offset, into);
  }

 private:
  std::string path_;
  NodePtr node_;
};

class Writable final : public WritableFile {
 public:
  Writable(std::string path, NodePtr node, std::function<void()> count)
      : path_(std::move(path)), node_(std::move(node)), count_(std::move(count)) {}
  const std::string& path() const noexcept override { return path_; }
  void write(uint64_t offset, std::span<const std::byte> from) override {
    count_();
    std::string& bytes = node_->written;
    bytes.resize(std::max<size_t>(bytes.size(), offset + from.size()));
    std::memcpy(bytes.data() + offset, from.data(), from.size());
  }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    read_bytes(node_->written, offset, into);
  }
  void sync() override {
    count_();
    node_->synced = node_->written;
  }

 private:
  std::string path_;
  NodePtr node_;
  std::function<void()> count_;
};

class Lockable final : public LockableFile {
 public:
  explicit Lockable(NodePtr node) : node_(std::move(node)) {}
  ~Lockable() override {
    if (held_ > 0) --node_->shared;
    if (held_ < 0) node_->exclusive = false;
  }
  LockState lock(LockMode mode) override {
    if (probe(mode) == LockState::busy) return LockState::busy;
    held_ = mode == LockMode::shared ? 1 : -1;
    node_->shared += held_ > 0 ? 1 : 0;
    node_->exclusive = held_ < 0;
    return LockState::taken;
  }
  LockState probe(LockMode mode) const override {
    const bool busy = (node_->exclusive && held_ == 0) ||
                      (mode == LockMode::exclusive && node_->shared > std::max(held_, 0));
    return busy ? LockState::busy : LockState::taken;
  }
  bool still_at_path() const override { return true; }

 private:
  NodePtr node_;
  int held_ = 0;
};

void resolve(Node& node, const PowerLossFileSystem::Choose& choose) {
  if (!node.folder) {
    if (choose(2, false) == 0) node.written = node.synced;
    node.synced = node.written;
    return;
  }
  const Entries chosen = node.states.at(choose(node.states.size(), true));
  node.states = {chosen};
  for (const auto& [name, child] : chosen) resolve(*child, choose);
}

}  // namespace

struct PowerLossFileSystem::State {
  NodePtr root = std::make_shared<Node>(Node{true, {}, {}});
  uint64_t count = 0, lost_at = 0;

  void operation() {
    ++count;
    if (lost_at != 0 && count >= lost_at) fail(ErrorKind::io, "the power is off");
  }
  NodePtr find(const std::string& path) const {
    NodePtr node = root;
    for (size_t begin = 0; begin < path.size() && path != ".";) {
      const size_t end = std::min(path.find('/', begin), path.size());
      if (!node->folder) return nullptr;
      const auto found = node->states.back().find(path.substr(begin, end - begin));
      if (found == node->states.back().end()) return nullptr;
      node = found->second;
      begin = end + 1;
    }
    return node;
  }
  NodePtr require(const std::string& path) const {
    NodePtr node = find(path);
    if (!node) fail(ErrorKind::not_found, "{} is missing", path);
    return node;
  }
  NodePtr parent(const std::string& path) const { return require(split_path(path).parent); }

  void add(const std::string& path, NodePtr node) {
    operation();
    if (find(path)) fail(ErrorKind::invalid, "{} exists already", path);
    parent(path)->change()[split_path(path).name] = std::move(node);
  }
  void remove(const std::string& path) {
    const NodePtr node = find(path);
    if (!node) return;
    if (node->folder) {
      const Entries entries = node->states.back();
      for (const auto& [name, child] : entries) remove(join(path, name));
    }
    operation();
    parent(path)->change().erase(split_path(path).name);
  }
  // All names that this program gives lie in one folder; so does a move, which is one change.
  void move(const std::string& from, const std::string& to) {
    operation();
    const NodePtr node = require(from);
    Entries& entries = parent(to)->change();
    entries.erase(split_path(from).name);
    entries[split_path(to).name] = node;
  }
};

PowerLossFileSystem::PowerLossFileSystem() : state_(std::make_unique<State>()) {}
PowerLossFileSystem::~PowerLossFileSystem() = default;

void PowerLossFileSystem::lose_power_at(uint64_t operation) {
  state_->count = 0;
  state_->lost_at = operation;
}

bool PowerLossFileSystem::lost_power() const {
  return state_->lost_at != 0 && state_->count >= state_->lost_at;
}

void PowerLossFileSystem::crash(const Choose& choose) {
  resolve(*state_->root, choose);
  lose_power_at(0);
}

PathStatus PowerLossFileSystem::status(const std::string& path) const {
  const NodePtr node = state_->find(path);
  if (!node) return {};
  return {node->folder ? PathKind::folder : PathKind::file, node->written.size()};
}

std::vector<std::string> PowerLossFileSystem::list(const std::string& path) const {
  std::vector<std::string> names;
  for (const auto& [name, child] : state_->require(path)->states.back()) names.push_back(name);
  return names;
}

std::shared_ptr<const ReadableFile> PowerLossFileSystem::open(const std::string& path) const {
  return std::make_shared<Readable>(path, state_->require(path));
}

std::unique_ptr<WritableFile> PowerLossFileSystem::create(const std::string& path,
                                                          uint64_t bytes) const {
  auto node = std::make_shared<Node>();
  node->written.resize(bytes);
  state_->add(path, node);
  return std::make_unique<Writable>(path, node, [this] { state_->operation(); });
}

void PowerLossFileSystem::create_folder(const std::string& path) const {
  state_->add(path, std::make_shared<Node>(Node{true, {}, {}}));
}

void PowerLossFileSystem::rename(const std::string& from, const std::string& to) const {
  if (state_->find(to)) fail(ErrorKind::invalid, "{} exists already", to);
  state_->move(from, to);
}

void PowerLossFileSystem::replace(const std::string& from, const std::string& to) const {
  state_->move(from, to);
}

void PowerLossFileSystem::exchange(const std::string& a, const std::string& b) const {
  state_->operation();
  const NodePtr first = state_->require(a), second = state_->require(b);
  Entries& entries = state_->parent(a)->change();
  entries[split_path(a).name] = second;
  entries[split_path(b).name] = first;
}

void PowerLossFileSystem::remove_all(const std::string& path) const { state_->remove(path); }

void PowerLossFileSystem::sync_folder(const std::string& path) const {
  state_->operation();
  const NodePtr node = state_->require(path);
  node->states = {node->states.back()};
}

std::unique_ptr<LockableFile> PowerLossFileSystem::open_lockable(const std::string& path,
                                                                 LockMode) const {
  return std::make_unique<Lockable>(state_->require(path));
}

uint64_t PowerLossFileSystem::copy(const ReadableFile&, uint64_t, WritableFile&, uint64_t, uint64_t,
                                   KernelCopy) const {
  return 0;
}

}  // namespace ferry::test
