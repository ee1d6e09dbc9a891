// Free space and permissions of the target are checked before a byte is written.
#include "ops/output/room.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "ckpt/base/error.h"
#include "ops/output/write_output.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class SmallDisk final : public MemoryFileSystem {
 public:
  std::optional<FreeSpace> free_space(const std::string& folder) const override {
    asked.push_back(folder);
    return space;
  }
  bool may_create_in(const std::string& folder) const override { return folder != "locked"; }

  std::optional<FreeSpace> space;
  mutable std::vector<std::string> asked;
};

PlannedOutput plan_of(uint64_t bytes) {
  PlannedOutput planned;
  planned.plan.source = {};
  planned.small_files.emplace_back("inner/config.json", std::string(bytes, 'x'));
  return planned;
}

class Room : public testing::Test {
 protected:
  Room() { disk_->create_folder("out"); }

  WrittenFiles write(const std::string& target, uint64_t bytes, bool dry_run) {
    planned_ = plan_of(bytes);
    WriteOptions options;
    options.dry_run = dry_run;
    options.integrity.manifest = false;
    options.engine.threads = 1;
    options.zstd_level = level_;
    return write_output(disk_, {OutputKind::checkpoint_folder, target, {}}, planned_, options);
  }

  std::string failure(const std::string& target, uint64_t bytes, bool dry_run, ErrorKind kind) {
    try {
      write(target, bytes, dry_run);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "written";
  }

  std::shared_ptr<SmallDisk> disk_ = std::make_shared<SmallDisk>();
  PlannedOutput planned_;
  std::optional<int> level_;
};

TEST_F(Room, TooLittleOfItStopsBothBeforeAnythingIsWritten) {
  disk_->space = FreeSpace{999, true};
  for (const bool dry_run : {false, true}) {
    const std::string text = failure("out/model", 1000, dry_run, ErrorKind::exhausted);
    EXPECT_THAT(text, HasSubstr("(1000 bytes) are needed in out"));
    EXPECT_THAT(text, HasSubstr("(999 bytes) are free"));
    EXPECT_THAT(disk_->list("out"), IsEmpty());
  }
  disk_->space = FreeSpace{1000, true};
  EXPECT_EQ(write("out/model", 1000, true).free_bytes, 1000u);
  EXPECT_THAT(disk_->list("out"), IsEmpty());
  EXPECT_EQ(write("out/model", 1000, false).bytes(), 1000u);
  EXPECT_THAT(planned_.warnings, IsEmpty());
}

// Where less may be taken than is written, nothing is refused that might have worked.
TEST_F(Room, IsNoReasonToStopWhereItIsNotSure) {
  disk_->space = FreeSpace{1, false};
  write("out/shared", 1000, false);
  EXPECT_THAT(planned_.warnings,
              Contains(HasSubstr("unless the file system compresses or shares")));
  disk_->space = std::nullopt;
  write("out/unknown", 1000, false);
  EXPECT_THAT(planned_.warnings, IsEmpty());
  EXPECT_EQ(write("out/another", 1000, true).free_bytes, std::nullopt);
  disk_->space = FreeSpace{1, true};
  level_ = 3;  // compressed, it may be less
  EXPECT_EQ(write("out/compressed", 1000, true).free_bytes, 1u);
}

TEST_F(Room, IsThatOfTheNearestFolder) {
  disk_->space = FreeSpace{5000, true};
  planned_ = plan_of(10);
  WriteOptions options;
  options.dry_run = true;
  write_output(disk_, {OutputKind::iteration, "out/run", 7}, planned_, options);
  EXPECT_THAT(disk_->asked, testing::ElementsAre("out"));
}

TEST_F(Room, PermissionIsAskedForInADryRun) {
  disk_->create_folder("locked");
  EXPECT_THAT(failure("locked/model", 10, true, ErrorKind::io),
              HasSubstr("nothing may be created in locked"));
}

TEST_F(Room, IsTheOperatingSystems) {
  const auto disk = posix_file_system();
  const std::string folder = testing::TempDir();
  EXPECT_TRUE(disk->may_create_in(folder));
  const std::string locked = folder + "/locked";
  std::filesystem::create_directories(locked);
  std::filesystem::permissions(locked, std::filesystem::perms::owner_read);
  EXPECT_EQ(disk->may_create_in(locked), ::geteuid() == 0);  // root may everywhere
  EXPECT_FALSE(disk->may_create_in(folder + "/missing"));
  if (const auto space = disk->free_space(folder)) {
    const auto reported = std::filesystem::space(folder);
    EXPECT_GT(space->bytes, 0u);
    EXPECT_LE(space->bytes, reported.capacity);
  }
  EXPECT_EQ(disk->free_space("/proc"), std::nullopt);  // of no size
}

}  // namespace
}  // namespace ferry
