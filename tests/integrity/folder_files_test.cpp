// Folders with links in them.
#include "ckpt/integrity/manifest/folder_files.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

struct FolderFilesTest : testing::Test {
  fs::path folder;

  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ferry-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    std::ofstream(folder / "file") << "123";
  }
  void TearDown() override { fs::remove_all(folder); }
};

TEST_F(FolderFilesTest, LinksInACircleEnd) {
  for (const char link : std::string("abcdefghij")) {
    fs::create_directory_symlink(".", folder / std::string(1, link));
  }
  const FolderFiles found = files_below(*posix_file_system(), folder.string());
  EXPECT_EQ(found.files.size(), 11u);
  EXPECT_EQ(found.not_seen.size(), 100u);
}

TEST_F(FolderFilesTest, LinkedRankFoldersAreLookedInto) {
  fs::create_directories(folder / "elsewhere/deeper");
  std::ofstream(folder / "elsewhere/deeper/data") << "12345";
  fs::create_directory(folder / "run");
  fs::create_directory_symlink("../elsewhere", folder / "run/mp_rank_00");
  const FolderFiles found = files_below(*posix_file_system(), (folder / "run").string());
  ASSERT_EQ(found.files.size(), 1u);
  EXPECT_EQ(found.files[0].path, (folder / "run/mp_rank_00/deeper/data").string());
  EXPECT_EQ(found.files[0].bytes, 5u);
  EXPECT_TRUE(found.not_seen.empty());
}

TEST_F(FolderFilesTest, StopsOnRequest) {
  const std::atomic<bool> cancel = true;
  EXPECT_THROW(files_below(*posix_file_system(), folder.string(), &cancel), Error);
}

}  // namespace
}  // namespace ferry
