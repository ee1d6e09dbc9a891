// Whatever operation fails while a plan runs into a staged folder: an error, the old target intact,
// no leftovers.
#include <gtest/gtest.h>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "ckpt/core/catalog.h"
#include "ckpt/core/plan.h"
#include "ckpt/core/recipe.h"
#include "ckpt/engine/run.h"
#include "ckpt/io/staging/staging.h"
#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

// A plan of two files with headers over one source tensor.
struct TwoFilesJob {
  TwoFilesJob() {
    memory->put("src/a", std::string(1 << 18, 'a'));
    memory->create_folder("runs");
    source.file_system = memory;
    source.add_file("src/a", 1 << 18);
    source.entries.push_back({"a", DType::u8, {512, 512}, {}, Role::model});
    source.entries[0].chunks.push_back({{Box::whole({512, 512})}, {}, {0, 0, 1 << 18}});
    plan.source = SharedCatalog::borrow(source);
    Entry target{"a", DType::u8, {512, 512}, {}, Role::model};
    for (int64_t half = 0; half < 2; ++half) {
      const auto file = static_cast<uint32_t>(half);
      plan.target.files.push_back({"part" + std::to_string(half), 4 + (1 << 17)});
      plan.literals.push_back({file, 0, "head"});
      target.chunks.push_back({{{{0, half * 256}, {512, 256}}}, {}, {file, 4, 1 << 17}});
    }
    plan.target.entries.push_back(target);
    plan.recipes.push_back({{0}, {copy_all({512, 512})}, {}});
    check(plan);
  }

  void convert(const std::shared_ptr<const FileSystem>& file_system, bool overwrite) const {
    StagedFolder staged(file_system, "runs/out", overwrite);
    EngineOptions options;
    options.threads = 2;
    run(plan, *file_system, staged.path(), options);
    staged.write_file("config.json", "{}");
    staged.commit();
  }

  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();
  Catalog source;
  Plan plan;
};

uint64_t operations_of(bool overwrite) {
  const TwoFilesJob job;
  if (overwrite) job.memory->put("runs/out/old", "old");
  const auto counting = std::make_shared<FaultFileSystem>(job.memory, 0, ErrorKind::io);
  job.convert(counting, overwrite);
  return counting->operations();
}

class EveryFault : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(EveryFault, LeavesTheOldTargetAndNothingElse) {
  const auto [overwrite, stays_broken] = GetParam();
  const uint64_t operations = operations_of(overwrite);
  ASSERT_GT(operations, 8u);
  // The last operation flushes the parent folder, when the new target already stands whole.
  for (uint64_t n = 1; n < operations; ++n) {
    SCOPED_TRACE(n);
    const TwoFilesJob job;
    if (overwrite) job.memory->put("runs/out/old", "old");
    const auto faulty =
        std::make_shared<FaultFileSystem>(job.memory, n, ErrorKind::exhausted, stays_broken);
    EXPECT_THROW(job.convert(faulty, overwrite), Error);
    const auto expected = overwrite ? std::vector<std::string>{"out"} : std::vector<std::string>{};
    EXPECT_EQ(job.memory->list("runs"), expected);
    if (overwrite) {
      EXPECT_EQ(job.memory->list("runs/out"), std::vector<std::string>{"old"});
    }
    job.convert(job.memory, overwrite);  // and the next run succeeds
    EXPECT_EQ(job.memory->list("runs/out"),
              (std::vector<std::string>{"config.json", "part0", "part1"}));
  }
}

INSTANTIATE_TEST_SUITE_P(Convert, EveryFault, testing::Combine(testing::Bool(), testing::Bool()));

TEST(ShrinkingSource, IsAnErrorAndLeavesNothing) {
  TwoFilesJob job;
  job.memory->put("src/a", "short");
  try {
    job.convert(job.memory, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    EXPECT_NE(std::string(error.what()).find("src/a"), std::string::npos);
  }
  EXPECT_TRUE(job.memory->list("runs").empty());
}

}  // namespace
}  // namespace ferry
