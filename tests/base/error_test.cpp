#include "ckpt/base/error.h"

#include <gtest/gtest.h>

#include "ckpt/checkpoint.h"

namespace ferry {
namespace {

std::string path_found(const std::string& message, std::initializer_list<std::string_view> paths) {
  Error error(ErrorKind::corrupt, message);
  error.find_path(paths);
  return std::string(error.path());
}

TEST(Error, FindsThePathThatItsMessageNames) {
  EXPECT_EQ(path_found("runs/a: not a run folder", {"runs/a"}), "runs/a");
  EXPECT_EQ(path_found("runs/a/x.distcp: 4 bytes; copy it again", {"runs/a"}), "runs/a/x.distcp");
  EXPECT_EQ(path_found("tensor w: file 'runs/a/x', byte 3", {"runs/a"}), "runs/a/x");
  EXPECT_EQ(path_found("no config.json in runs/a.", {"runs/a"}), "runs/a");
  EXPECT_EQ(path_found("my runs/a: is empty", {"my runs/a"}), "my runs/a");
  EXPECT_EQ(path_found("runs/a/: is empty", {"runs/a/"}), "runs/a/");
}

TEST(Error, FindsTheFirstAndLongestOfSeveralPaths) {
  EXPECT_EQ(path_found("b: exists already, a is newer", {"a", "b"}), "b");
  EXPECT_EQ(path_found("a/b/x: exists", {"a", "a/b"}), "a/b/x");
}

TEST(Error, FindsNoPathInPartsOfWords) {
  EXPECT_EQ(path_found("runs/ab: is empty", {"runs/a"}), "");
  EXPECT_EQ(path_found("my/runs/a: is empty", {"runs/a"}), "");
  EXPECT_EQ(path_found("options exclude each other", {"", "runs/a"}), "");
}

TEST(Error, KeepsThePathThatIsSet) {
  Error error(ErrorKind::io, "cannot open a: no");
  error.set_path("b");
  error.find_path({"a"});
  EXPECT_EQ(error.path(), "b");
  EXPECT_EQ(Error(error).path(), "b");  // copies have it, too
}

TEST(Error, HintIsWhatFollowsTheLastSemicolon) {
  EXPECT_EQ(hint_of("a: is empty; copy it again"), "copy it again");
  EXPECT_EQ(hint_of("a: is old; new; write it again"), "write it again");
  EXPECT_EQ(hint_of("a: is empty"), "");
}

TEST(Error, NamesTheFileThatCannotBeOpened) {
  try {
    posix_file_system()->open("/nowhere/at all.bin");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.path(), "/nowhere/at all.bin");
  }
}

TEST(Error, NamesThePathThatIsNoCheckpoint) {
  try {
    open_checkpoint(posix_file_system(), "/dev/null");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.path(), "/dev/null");
  }
}

}  // namespace
}  // namespace ferry
