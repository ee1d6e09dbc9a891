// Files that other processes have open, according to the system.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "ckpt/io/staging/processes.h"
#include "tests/open_elsewhere.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::IsEmpty;

struct OpenFiles : testing::Test {
  fs::path folder;

  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ferry-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    fs::create_directories(folder / "run/iter_0000001");
    std::ofstream(folder / "run/iter_0000001/data") << "x";
    std::ofstream(folder / "other") << "x";
    fs::create_directory_symlink(folder / "run", folder / "link");
  }
  void TearDown() override { fs::remove_all(folder); }
};

TEST_F(OpenFiles, OfOtherProcessesAreSeenHoweverTheFolderIsNamed) {
  const test::OpenElsewhere child((folder / "link/iter_0000001/data").string());
  const test::OpenElsewhere unrelated((folder / "other").string());
  ASSERT_TRUE(child.opened());
  for (const char* name : {"run", "run/", "link", "./run/../link"}) {
    const auto open = files_open_below((folder / name).string());
    ASSERT_EQ(open.size(), 1u) << name;
    EXPECT_EQ(open[0].path, "iter_0000001/data");
    // It is the shell until that has become the program.
    const std::string who = " (process " + child.number() + ")";
    EXPECT_THAT(open[0].who, AnyOf("sleep" + who, "sh" + who));
  }
}

TEST_F(OpenFiles, OwnOnesAndThoseOfNobodyAreNot) {
  const std::ifstream own(folder / "run/iter_0000001/data");
  EXPECT_THAT(files_open_below((folder / "run").string()), IsEmpty());
  EXPECT_THAT(files_open_below("/nowhere/run"), IsEmpty());
}

}  // namespace
}  // namespace ferry
