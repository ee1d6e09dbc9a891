#include "ckpt/io/staging/publish.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "tests/io/durable_file_system.h"
#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::shared_ptr<MemoryFileSystem> memory_with_folder() {
  auto memory = std::make_shared<MemoryFileSystem>();
  memory->create_folder("runs");
  return memory;
}

NewFile new_file(const std::string& name, std::initializer_list<std::string_view> pieces) {
  NewFile file{name, {}};
  for (const std::string_view piece : pieces) {
    file.pieces.push_back(std::as_bytes(std::span(piece)));
  }
  return file;
}

void publish_a(const std::shared_ptr<const FileSystem>& file_system, Existing existing) {
  const WriteLock lock(file_system, "runs/a");
  publish_file(*file_system, lock, "runs/a", "new", existing);
}

void publish_two(const std::shared_ptr<const FileSystem>& file_system) {
  const WriteLock lock(file_system, "runs/a");
  const std::vector<NewFile> files = {new_file("b", {"1", "", "23"}), new_file("a", {"new"})};
  publish_files(*file_system, lock, "runs", files, Existing::replace);
}

TEST(Publish, PutsFilesInPlaceAndTheirNamesOnDisk) {
  const auto memory = memory_with_folder();
  const auto durable = std::make_shared<DurableFileSystem>(memory);
  publish_a(durable, Existing::refuse);
  EXPECT_EQ(memory->get("runs/a"), "new");
  EXPECT_TRUE(durable->unsynced_folders().empty());
  memory->put("runs/a", "old");
  publish_two(durable);
  EXPECT_EQ(memory->get("runs/a"), "new");
  EXPECT_EQ(memory->get("runs/b"), "123");
  EXPECT_TRUE(durable->unsynced_folders().empty());
  EXPECT_THAT(memory->list("runs"), ElementsAre("a", "b"));
}

TEST(Publish, RefusesAFileThatIsThereUnlessItMayBeReplaced) {
  const auto memory = memory_with_folder();
  memory->put("runs/a", "old");
  EXPECT_THROW(publish_a(memory, Existing::refuse), Error);
  EXPECT_EQ(memory->get("runs/a"), "old");
  EXPECT_THAT(memory->list("runs"), ElementsAre("a"));
  publish_a(memory, Existing::replace);
  EXPECT_EQ(memory->get("runs/a"), "new");
}

// Whatever fails: the old one or the new one, nothing aside, and words that say which.
TEST(Publish, AnErrorLeavesNothingAsideAndSaysWhenTheNewOneStands) {
  for (const bool is_two : {false, true}) {
    int failed_before = 0, failed_late = 0;
    for (uint64_t n = 1;; ++n) {
      const auto memory = memory_with_folder();
      memory->put("runs/a", "old");
      const auto faulty = std::make_shared<FaultFileSystem>(memory, n, ErrorKind::io);
      try {
        is_two ? publish_two(faulty) : publish_a(faulty, Existing::replace);
        break;
      } catch (const Error& error) {
        const bool stands = memory->get("runs/a") == "new";
        const std::string done = "runs/a is complete and in place, but may not outlast";
        EXPECT_EQ(std::string(error.what()).starts_with(done), stands) << error.what();
        for (const std::string& name : memory->list("runs")) {
          EXPECT_FALSE(name.starts_with(".ferry-partial")) << n;
        }
        // The last of several shows that the others are there.
        if (is_two && stands) {
          EXPECT_EQ(memory->get("runs/b"), "123");
        }
        (stands ? failed_late : failed_before) += 1;
      }
    }
    EXPECT_EQ(failed_late, 1);
    EXPECT_GT(failed_before, 5);
  }
}

TEST(Publish, SaysInTheCallersWordsThatAllIsDoneButTheSync) {
  for (uint64_t n = 1;; ++n) {
    const auto memory = memory_with_folder();
    const auto faulty = std::make_shared<FaultFileSystem>(memory, n, ErrorKind::io);
    try {
      const WriteLock lock(faulty, "runs/a");
      publish_file(*faulty, lock, "runs/a", "new", Existing::refuse, "it names 5 now");
      ADD_FAILURE() << "no error of the last sync";
      return;
    } catch (const Error& error) {
      if (memory->status("runs/a").kind == PathKind::missing) continue;
      EXPECT_THAT(error.what(), StartsWith("it names 5 now, but may not outlast a power loss: "));
      return;
    }
  }
}

TEST(Publish, PutsNothingInPlaceOfOneThatTookTheTargetOver) {
  const auto memory = memory_with_folder();
  const WriteLock lock(memory, "runs/a");
  memory->rename("runs/.ferry-lock.a", "runs/.ferry-lock.moved");
  const WriteLock other(memory, "runs/a");
  try {
    publish_file(*memory, lock, "runs/a", "new", Existing::replace);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::busy);
    EXPECT_THAT(error.what(), HasSubstr("was taken over by"));
  }
  EXPECT_EQ(memory->status("runs/a").kind, PathKind::missing);
  EXPECT_EQ(memory->status(lock.partial_path()).kind, PathKind::missing);
}

}  // namespace
}  // namespace ferry
