#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/io/file_system.h"

namespace ferry {
namespace {

struct MappedFiles : testing::Test {
  MappedFiles() : folder(testing::TempDir() + "mapped_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder);
  }
  ~MappedFiles() override { std::filesystem::remove_all(folder); }

  std::shared_ptr<const ReadableFile> mapped(const std::string& content) const {
    std::filesystem::remove(folder + "/file");
    write_file(*disk, folder + "/file", content);
    return disk->map(folder + "/file");
  }

  std::string folder;
  std::shared_ptr<const FileSystem> disk = posix_file_system();
};

TEST_F(MappedFiles, BytesLieInMemory) {
  const auto file = mapped("abcdef");
  EXPECT_EQ(file->size(), 6u);
  EXPECT_EQ(file->path(), folder + "/file");
  const std::span<const std::byte> view = file->view(2, 3);
  ASSERT_EQ(view.size(), 3u);
  EXPECT_EQ(std::memcmp(view.data(), "cde", 3), 0);
  std::vector<std::byte> bytes(6);
  file->read(0, bytes);
  EXPECT_EQ(std::memcmp(bytes.data(), "abcdef", 6), 0);
  EXPECT_EQ(file->view(6, 0).size(), 0u);
}

TEST_F(MappedFiles, NothingIsBeyondTheEnd) {
  const auto file = mapped("abcdef");
  std::vector<std::byte> bytes(3);
  EXPECT_THROW(file->view(4, 3), Error);
  EXPECT_THROW(file->view(7, 0), Error);
  EXPECT_THROW(file->view(2, UINT64_MAX), Error);
  EXPECT_THROW(file->read(4, bytes), Error);
}

TEST_F(MappedFiles, StayWhatTheyAreWhenAnotherTakesTheirPlace) {
  const auto file = mapped("old");
  mapped("new");
  EXPECT_EQ(std::memcmp(file->view(0, 3).data(), "old", 3), 0);
}

TEST_F(MappedFiles, EmptyOnesAndFolders) {
  EXPECT_EQ(mapped("")->size(), 0u);
  EXPECT_THROW(disk->map(folder), Error);
  EXPECT_THROW(disk->map(folder + "/none"), Error);
}

}  // namespace
}  // namespace ferry
