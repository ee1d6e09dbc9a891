// Files in memory (tmpfs), whose pages are written past the file's lock.
#include "ckpt/io/page_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/io/file_system.h"
#include "ckpt/io/posix_descriptor.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMebibyte = 1 << 20;

std::string random_bytes(uint64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(bytes, '\0');
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t value = random();
    std::memcpy(text.data() + i, &value, 8);
  }
  return text;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class Pages : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/dev/shm/ferry-pages-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) GTEST_SKIP() << "there are no files in memory";
    folder_ = name;
    const Descriptor file(::open((name + "/probe").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!PageWriter::takes(file.get())) GTEST_SKIP() << "/dev/shm is not a tmpfs of small pages";
    if (!PageWriter::open()) GTEST_SKIP() << "the system gives no userfaultfd";
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string content(const std::string& name) const {
    return read_file(*plain_, path(name), 256 * kMebibyte);
  }

  std::string folder_;
  std::shared_ptr<const FileSystem> pages_ = posix_file_system({PageWrites::always});
  std::shared_ptr<const FileSystem> plain_ = posix_file_system({PageWrites::never});
};

// Lines of /proc/self/maps that name a file.
int mappings_of(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.ends_with(path) ? 1 : 0;
  return count;
}

int64_t shared_kibibytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t value = 0;
    if (word == "RssShmem:" && status >> value) return value;
  }
  return -1;
}

// What `work` returns in a forked process; 100 when it throws, -1 when a signal ends it.
int exit_code_of(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 100;
    try {
      code = work();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(Pages, AreWrittenOnce) {
  const std::string bytes = random_bytes(kMebibyte, 1);
  const Descriptor file(::open(path("a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), 3 * kMebibyte), 0);
  const auto writer = PageWriter::open();
  const auto mapped = writer->map(file.get());
  ASSERT_TRUE(mapped);
  EXPECT_EQ(writer->write(mapped, kMebibyte, bytes_of(bytes)), kMebibyte);
  EXPECT_EQ(writer->write(mapped, kMebibyte, bytes_of(bytes)), 0u);
  // Up to the first page that is there, and up to the end of the file.
  const std::string more = random_bytes(4 * kMebibyte, 2);
  EXPECT_EQ(writer->write(mapped, 0, bytes_of(more)), kMebibyte);
  EXPECT_EQ(writer->write(mapped, 2 * kMebibyte, bytes_of(more)), kMebibyte);
  EXPECT_EQ(writer->write(mapped, 3 * kMebibyte, bytes_of(more)), 0u);
  EXPECT_TRUE(content("a") == more.substr(0, kMebibyte) + bytes + more.substr(0, kMebibyte));
}

// Pieces of any length at any place, each written once by one of several threads.
TEST_F(Pages, FromManyThreadsAreTheBytesOfPlainWrites) {
  test::for_random_cases(8, [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::string bytes = random_bytes(5 * kMebibyte + random() % 5000, seed);
    std::vector<std::pair<uint64_t, uint64_t>> pieces;  // offset, bytes
    for (uint64_t at = 0; at < bytes.size();) {
      const uint64_t most = random() % 3 == 0 ? 9'000 : 700'000;
      const uint64_t length = std::min(1 + random() % most, bytes.size() - at);
      pieces.emplace_back(at, length);
      at += length;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    for (const auto& files : {pages_, plain_}) {
      fs::remove(path("a"));
      const auto file = files->create(path("a"), bytes.size());
      std::atomic<size_t> next{0};
      on_threads(4, [&](int, const std::atomic<bool>& stop) {
        for (size_t i = next++; i < pieces.size() && !stop; i = next++) {
          const auto [at, length] = pieces[i];
          file->write(at, bytes_of(bytes).subspan(at, length));
        }
      });
      file->sync();
      file->close();
      EXPECT_TRUE(content("a") == bytes);
    }
  });
}

TEST_F(Pages, ThatAreThereAreWrittenOver) {
  const std::string first = random_bytes(kMebibyte, 1), second = random_bytes(kMebibyte / 2, 2);
  const auto file = pages_->create(path("a"), kMebibyte);
  file->write(0, bytes_of(first));
  file->write(100'000, bytes_of(second));
  std::string expected = first;
  expected.replace(100'000, second.size(), second);
  EXPECT_TRUE(content("a") == expected);
}

// As with a plain write, the file grows again; what was cut off is lost.
TEST_F(Pages, OfAFileThatWasCutShortMeanwhile) {
  const std::string bytes = random_bytes(2 * kMebibyte, 1);
  for (const auto& files : {pages_, plain_}) {
    fs::remove(path("a"));
    const auto file = files->create(path("a"), 4 * kMebibyte);
    file->write(0, bytes_of(bytes));
    fs::resize_file(path("a"), kMebibyte + 5);
    file->write(2 * kMebibyte, bytes_of(bytes));
    EXPECT_TRUE(content("a") ==
                bytes.substr(0, kMebibyte + 5) + std::string(kMebibyte - 5, '\0') + bytes);
  }
}

// Mounts a small tmpfs that only this process sees.
bool mount_small(const std::string& folder) {
  const std::string user = std::to_string(::geteuid());
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/uid_map") << "0 " + user + " 1";
  }
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", folder.c_str(), "tmpfs", 0, "size=1m") == 0;
}

// A file system that is full in the middle of a write is an error like any other.
TEST_F(Pages, WithoutRoom) {
  const std::string small = path("small");
  fs::create_directory(small);
  const std::string bytes = random_bytes(600'000, 1);
  const auto fill = [&] {
    if (!mount_small(small)) return 2;
    const auto one = pages_->create(small + "/one", bytes.size());
    const auto two = pages_->create(small + "/two", bytes.size());
    one->write(0, bytes_of(bytes));
    try {
      two->write(0, bytes_of(bytes));
      return 1;
    } catch (const Error& error) {
      const std::string what = error.what();
      const bool is_reported =
          error.kind() == ErrorKind::exhausted && what.find("/two") != std::string::npos;
      return is_reported && read_file(*plain_, small + "/one", kMebibyte) == bytes ? 0 : 1;
    }
  };
  const int code = exit_code_of(fill);
  if (code == 2) GTEST_SKIP() << "this user may not mount";
  EXPECT_EQ(code, 0);
}

// The mapping is the other process's.
TEST_F(Pages, OfAFileThatAForkedProcessHasFromItsParent) {
  const std::string bytes = random_bytes(kMebibyte, 1);
  const auto file = pages_->create(path("a"), 3 * kMebibyte);
  const auto unmapped = pages_->create(path("c"), kMebibyte);
  file->write(0, bytes_of(bytes));
  const int code = exit_code_of([&] {
    file->write(kMebibyte, bytes_of(bytes));
    unmapped->write(0, bytes_of(bytes));
    if (mappings_of(path("c")) > 0) return 2;  // the parent's memory would be changed
    const auto own = pages_->create(path("b"), kMebibyte);
    own->write(0, bytes_of(bytes));
    return content("b") == bytes ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  file->write(2 * kMebibyte, bytes_of(bytes));
  EXPECT_TRUE(content("a") == bytes + bytes + bytes);
  EXPECT_TRUE(content("c") == bytes);
}

// Pieces far apart, none of them long: what is written does not add up to memory of the process.
TEST_F(Pages, AreNotKeptInMappings) {
  constexpr uint64_t kBytes = 96 * kMebibyte, kPiece = 256 << 10;
  const std::string bytes = random_bytes(kPiece, 1);
  const int64_t before = shared_kibibytes();
  auto one = pages_->create(path("one"), kBytes), two = pages_->create(path("two"), 2 * kBytes);
  for (uint64_t at = 0; at < kBytes; at += kPiece) {
    one->write(at, bytes_of(bytes));
    two->write(2 * at, bytes_of(bytes));
    ASSERT_LT(shared_kibibytes(), before + 36 * 1024) << at;
  }
  EXPECT_EQ(mappings_of(path("one")), 1);
  one->close();
  EXPECT_EQ(mappings_of(path("one")), 0);
  EXPECT_EQ(mappings_of(path("two")), 1);
  two.reset();
  EXPECT_EQ(mappings_of(path("two")), 0);
  std::string expected;
  for (uint64_t at = 0; at < kBytes; at += kPiece) expected += bytes;
  EXPECT_TRUE(content("one") == expected);
}

}  // namespace
}  // namespace ferry
