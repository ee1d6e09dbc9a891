#include "ckpt/io/staging.h"

#include <gtest/gtest.h>

#include "ckpt/base/error.h"
#include "ckpt/io/memory_file_system.h"

namespace ferry {
namespace {

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

TEST(Staging, RemovesWhatDeadProcessesLeft) {
  const auto memory = memory_with_runs();
  std::string partial;
  {
    StagedFolder staged(memory, "runs/a", false);
    partial = staged.path();
  }
  // The same name with a process number that cannot be alive.
  const size_t last = partial.rfind('-'), before = partial.rfind('-', last - 1);
  const std::string dead = partial.substr(0, before + 1) + "4194305" + partial.substr(last);
  memory->put(dead + "/x", "1");
  const StagedFolder staged(memory, "runs/a", false);
  EXPECT_EQ(memory->status(dead).kind, PathKind::missing);
}

TEST(Staging, SecondWriterOfOneTargetIsTold) {
  const auto memory = memory_with_runs();
  StagedFolder first(memory, "runs/a", false), second(memory, "runs/a", false);
  first.write_file("x", "first");
  second.write_file("x", "second");
  first.commit();
  EXPECT_THROW(second.commit(), Error);
  EXPECT_EQ(memory->get("runs/a/x"), "first");
}

TEST(JoinUntrusted, RefusesNamesThatLeaveTheFolder) {
  EXPECT_EQ(join_untrusted("a", "b/c"), "a/b/c");
  for (const std::string name : {"", "/etc/passwd", "../x", "b/../../x", ".."}) {
    EXPECT_THROW(join_untrusted("a", name), Error) << name;
  }
  EXPECT_THROW(join_untrusted("a", std::string("a\0b", 3)), Error);
}

}  // namespace
}  // namespace ferry
