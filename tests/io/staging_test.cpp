#include "ckpt/io/staging/staging.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/reader_lock.h"
#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename Call>
std::string message(ErrorKind kind, const Call& call) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return {};
}

std::shared_ptr<MemoryFileSystem> memory_with_runs() {
  auto memory = std::make_shared<MemoryFileSystem>();
  memory->create_folder("runs");
  return memory;
}

TEST(Staging, AppearsOnlyOnCommit) {
  const auto memory = memory_with_runs();
  StagedFolder staged(memory, "runs/a", false);
  staged.write_file("x", "1");
  EXPECT_EQ(memory->status("runs/a").kind, PathKind::missing);
  staged.commit();
  EXPECT_EQ(memory->get("runs/a/x"), "1");
  EXPECT_EQ(memory->list("runs"), std::vector<std::string>{"a"});
}

TEST(Staging, LeavesNothingWithoutCommit) {
  const auto memory = memory_with_runs();
  { StagedFolder(memory, "runs/a", false).write_file("x", "1"); }
  EXPECT_TRUE(memory->list("runs").empty());
}

TEST(Staging, KeepsTheOldTargetUntilCommit) {
  const auto memory = memory_with_runs();
  memory->put("runs/a/x", "old");
  EXPECT_THROW(StagedFolder(memory, "runs/a", false), Error);
  StagedFolder staged(memory, "runs/a", true);
  staged.write_file("x", "new");
  EXPECT_EQ(memory->get("runs/a/x"), "old");
  staged.commit();
  EXPECT_EQ(memory->get("runs/a/x"), "new");
  EXPECT_EQ(memory->list("runs"), std::vector<std::string>{"a"});
}

TEST(Staging, AnErrorSaysWhenTheNewOneStands) {
  for (const bool replaces : {false, true}) {
    bool failed_late = false;
    for (uint64_t n = 1;; ++n) {
      const auto memory = memory_with_runs();
      if (replaces) memory->put("runs/a/old", "");
      const auto faulty = std::make_shared<FaultFileSystem>(memory, n, ErrorKind::io);
      try {
        StagedFolder staged(faulty, "runs/a", replaces);
        staged.write_file("x", "1");
        staged.commit();
        break;
      } catch (const Error& error) {
        const bool stands = memory->status("runs/a/x").kind == PathKind::file;
        const std::string message = error.what();
        EXPECT_EQ(message.starts_with("runs/a is complete and in place"), stands) << message;
        failed_late |= stands;
      }
    }
    EXPECT_TRUE(failed_late);
  }
}

TEST(Staging, ReleasesTheLockOnCommit) {
  const auto memory = memory_with_runs();
  StagedFolder first(memory, "runs/a", false);
  first.commit();
  StagedFolder second(memory, "runs/a", true);
  second.write_file("x", "second");
  second.commit();
  EXPECT_EQ(memory->get("runs/a/x"), "second");
}

TEST(Staging, SecondWriterOfOneTargetIsReported) {
  const auto memory = memory_with_runs();
  StagedFolder first(memory, "runs/a", false);
  first.write_file("x", "first");
  EXPECT_THAT(message(ErrorKind::busy, [&] { StagedFolder(memory, "runs/a", true); }),
              AllOf(HasSubstr("runs/a is being written by process"), HasSubstr(" since 2")));
  first.commit();
  EXPECT_EQ(memory->get("runs/a/x"), "first");
}

TEST(Staging, DoesNotReplaceWhatIsBeingRead) {
  const auto memory = memory_with_runs();
  memory->put("runs/a/x", "old");
  auto mark = std::make_unique<ReaderLock>(*memory, "runs/a");
  EXPECT_THAT(message(ErrorKind::busy, [&] { StagedFolder(memory, "runs/a", true); }),
              HasSubstr("is being read"));
  mark.reset();
  StagedFolder staged(memory, "runs/a", true);
  // A reader that comes later still finds the new one, and gets an error.
  const ReaderLock late(*memory, "runs/a");
  staged.commit();
  EXPECT_FALSE(late.still_there());
  EXPECT_THROW(late.check(), Error);
}

TEST(Staging, ADanglingLinkIsNoTarget) {
  const std::string folder = testing::TempDir() + "ferry_staging_link";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink("nothing", folder + "/a");
  for (const bool overwrite : {false, true}) {
    const auto make = [&] { StagedFolder(posix_file_system(), folder + "/a", overwrite); };
    EXPECT_THAT(message(ErrorKind::invalid, make), HasSubstr("does not exist"));
  }
  EXPECT_THAT(
      message(ErrorKind::invalid, [&] { posix_file_system()->create_folder(folder + "/a"); }),
      HasSubstr("does not exist"));
  EXPECT_EQ(posix_file_system()->list(folder), std::vector<std::string>{"a"});
  StagedFolder(posix_file_system(), folder + "/b/", false).commit();  // a slash does no harm
  EXPECT_EQ(posix_file_system()->status(folder + "/b").kind, PathKind::folder);
  std::filesystem::remove_all(folder);
}

TEST(JoinUntrusted, RefusesNamesThatLeaveTheFolder) {
  EXPECT_EQ(join_untrusted("a", "b/c"), "a/b/c");
  for (const std::string name : {"", "/etc/passwd", "../x", "b/../../x", ".."}) {
    EXPECT_THROW(join_untrusted("a", name), Error) << name;
  }
  try {
    join_untrusted("a", std::string("a\0b", 3));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a: the file name 'a?b' in its metadata would leave the folder");
  }
}

}  // namespace
}  // namespace ferry
