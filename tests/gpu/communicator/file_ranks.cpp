#include "tests/gpu/communicator/file_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"

namespace ferry::test {
namespace {

// Messages are numbered by where they go.
class Folder {
 public:
  Folder(std::string path, int rank, int size) : path_(std::move(path)), rank_(rank), size_(size) {
    own_ = ::open(sign_of_life(rank).c_str(), O_RDWR | O_CREAT, 0600);
    if (own_ < 0 || ::flock(own_, LOCK_EX) != 0) fail(ErrorKind::io, "cannot lock {}", path_);
    put("begun", std::to_string(rank_), "");
  }
  ~Folder() { ::close(own_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  void put(const std::string& kind, const std::string& name, const std::string& bytes) const {
    const std::string file = fmt::format("{}/{}-{}", path_, kind, name);
    std::ofstream(file + ".part", std::ios::binary) << bytes;
    std::filesystem::rename(file + ".part", file);
  }
  std::string take(const std::string& kind, const std::string& name) const {
    const std::string file = fmt::format("{}/{}-{}", path_, kind, name);
    while (!std::filesystem::exists(file)) {
      try {
        check();
      } catch (const Error&) {
        if (std::filesystem::exists(file)) break;  // its last word before it ended
        throw;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  void check() const {
    if (std::filesystem::exists(path_ + "/aborted-all")) {
      fail(ErrorKind::io, "{}", take("aborted", "all"));
    }
    for (int other = 0; other < size_; ++other) {
      if (other == rank_ || !std::filesystem::exists(fmt::format("{}/begun-{}", path_, other))) {
        continue;
      }
      const int file = ::open(sign_of_life(other).c_str(), O_RDWR);
      const bool has_ended = file >= 0 && ::flock(file, LOCK_SH | LOCK_NB) == 0;
      if (file >= 0) ::close(file);
      if (has_ended) fail(ErrorKind::cancelled, "rank {} has ended", other);
    }
  }

 private:
  std::string sign_of_life(int rank) const { return fmt::format("{}/alive-{}", path_, rank); }

  std::string path_;
  int rank_, size_;
  int own_ = -1;
};

class FileTransport final : public Transport {
 public:
  explicit FileTransport(std::shared_ptr<Folder> folder) : folder_(std::move(folder)) {}
  int rank() const noexcept override { return folder_->rank(); }
  int size() const noexcept override { return folder_->size(); }
  uint64_t reserve_groups(uint64_t) override { fail(ErrorKind::unsupported, "groups of groups"); }
  void send(uint64_t group, std::span<const int> ranks, Message message) override {
    for (const int to : ranks) {
      folder_->put("message",
                   fmt::format("{}-{}-{}-{}", group, rank(), to, ++numbers_[{group, rank(), to}]),
                   fmt::format("{} {}", message.label, message.bytes));
    }
  }
  Message receive(uint64_t group, int from) override {
    const std::string text = folder_->take(
        "message",
        fmt::format("{}-{}-{}-{}", group, from, rank(), ++numbers_[{group, from, rank()}]));
    const size_t space = text.find(' ');
    return {std::stoull(text.substr(0, space)), text.substr(space + 1)};
  }
  void check() override { folder_->check(); }
  void leave(uint64_t, std::span<const int>) noexcept override {}
  void abort(const Error& error) noexcept override {
    folder_->put("aborted", "all", fmt::format("rank {}: {}", rank(), error.what()));
  }

 private:
  std::shared_ptr<Folder> folder_;
  std::map<std::tuple<uint64_t, int, int>, int> numbers_;
};

class FileLinks final : public Links {
 public:
  FileLinks(std::shared_ptr<Folder> folder, std::shared_ptr<Group> group)
      : folder_(std::move(folder)), group_(std::move(group)) {}
  int rank() const noexcept override { return folder_->rank(); }
  int size() const noexcept override { return folder_->size(); }
  uint64_t offer(int channel, int to, std::span<const std::byte> bytes) override {
    folder_->put("offer", name(channel, rank(), to),
                 {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return 1;
  }
  void wait(uint64_t) override {}
  void withdraw() noexcept override { abort_with_current_exception(*group_); }
  void take(int channel, int from, size_t, const Use& use) override {
    const std::string bytes = folder_->take("offer", name(channel, from, rank()));
    use(std::as_bytes(std::span(bytes)));
  }

 private:
  std::string name(int channel, int from, int to) {
    return fmt::format("{}-{}-{}-{}", channel, from, to, ++numbers_[{channel, from, to}]);
  }

  std::shared_ptr<Folder> folder_;
  std::shared_ptr<Group> group_;
  std::map<std::tuple<int, int, int>, int> numbers_;
};

}  // namespace

std::pair<std::shared_ptr<Group>, std::shared_ptr<Links>> file_ranks(const std::string& folder,
                                                                     int rank, int size) {
  const auto files = std::make_shared<Folder>(folder, rank, size);
  const auto group = message_group(std::make_shared<FileTransport>(files));
  return {group, std::make_shared<FileLinks>(files, group)};
}

}  // namespace ferry::test
