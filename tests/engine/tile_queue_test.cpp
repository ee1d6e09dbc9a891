// Which thread gets which tiles.
#include "ckpt/engine/tiles/tile_queue.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

namespace ferry {
namespace {

constexpr int64_t kTensorsAFile = 8;

// Files of several tensors of a byte, each an item.
struct SmallItemsJob {
  explicit SmallItemsJob(uint32_t files) {
    const auto count = static_cast<int64_t>(files) * kTensorsAFile;
    source.add_file("src", static_cast<uint64_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const auto file = static_cast<uint32_t>(i / kTensorsAFile);
      const auto at = static_cast<uint64_t>(i % kTensorsAFile);
      const std::string name = "t" + std::to_string(i);
      source.entries.push_back({name, DType::u8, {1}, {}, Role::model});
      source.entries.back().chunks.push_back({{{{0}, {1}}}, {}, {0, static_cast<uint64_t>(i), 1}});
      plan.target.entries.push_back({name, DType::u8, {1}, {}, Role::model});
      plan.target.entries.back().chunks.push_back({{{{0}, {1}}}, {}, {file, at, 1}});
      plan.recipes.push_back({{static_cast<uint32_t>(i)}, {copy_all({1})}, {}});
      plan.items.push_back({file, at, 1, {}});
    }
    for (uint32_t i = 0; i < files; ++i) {
      plan.target.files.push_back({"f" + std::to_string(i), kTensorsAFile});
    }
    plan.source = SharedCatalog::borrow(source);
    check(plan);
  }
  uint32_t file_of(size_t entry) const { return plan.target.entries[entry].chunks[0].extent.file; }

  Catalog source;
  Plan plan;
};

TEST(TileQueue, SpreadsThreadsEvenlyOverFiles) {
  for (const uint32_t files : {1u, 3u, 4u, 8u}) {
    const SmallItemsJob job(files);
    PlanCompiler compiler(job.plan);
    constexpr int kThreads = 8;
    TileQueue queue(job.plan, compiler, kThreads, 1 << 20);
    std::map<uint32_t, int> threads_at;
    for (int thread = 0; thread < kThreads; ++thread) {
      const auto tile = queue.next(thread);
      ASSERT_TRUE(tile);
      ++threads_at[job.file_of(tile->entry)];
    }
    EXPECT_EQ(threads_at.size(), files);
    for (const auto& [file, threads] : threads_at) {
      EXPECT_GE(threads, kThreads / static_cast<int>(files)) << file << " of " << files;
      EXPECT_LE(threads, (kThreads + static_cast<int>(files) - 1) / static_cast<int>(files));
    }
  }
}

// A tensor of several layers, whose rows lie in the files of several ranks.
TEST(TileQueue, SpreadsThreadsOverTheFilesOfATensor) {
  constexpr int64_t kLayers = 3, kRanks = 4;
  SmallItemsJob job(0);
  job.source.add_file("src2", kLayers * kRanks);
  job.source.entries.push_back({"t", DType::u8, {kLayers, kRanks}, {}, Role::model});
  job.source.entries[0].chunks.push_back({{Box::whole({kLayers, kRanks})}, {}, {1, 0, 12}});
  Entry target{"t", DType::u8, {kLayers, kRanks}, {}, Role::model};
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const auto file = static_cast<uint32_t>(rank);
    job.plan.target.files.push_back({"f" + std::to_string(rank), kLayers});
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const auto at = static_cast<uint64_t>(layer);
      target.chunks.push_back({{{{layer, rank}, {1, 1}}}, {}, {file, at, 1}});
    }
  }
  job.plan.target.entries.push_back(target);
  job.plan.recipes.push_back({{0}, {copy_all({kLayers, kRanks})}, {}});
  check(job.plan);
  PlanCompiler compiler(job.plan);
  TileQueue queue(job.plan, compiler, kRanks, 1 << 20);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    std::set<int64_t> files;
    for (int thread = 0; thread < kRanks; ++thread) {
      const auto tile = queue.next(thread);
      ASSERT_TRUE(tile);
      EXPECT_EQ(tile->box.offset[0], layer);
      EXPECT_EQ(element_count(tile->box.size, "tile"), 1);
      files.insert(tile->box.offset[1]);
    }
    EXPECT_EQ(files.size(), static_cast<size_t>(kRanks));
  }
  EXPECT_FALSE(queue.next(0));
}

TEST(TileQueue, AThreadStaysAtItsFileAndThenHelps) {
  const SmallItemsJob job(3);
  PlanCompiler compiler(job.plan);
  TileQueue queue(job.plan, compiler, 2, 1 << 20);
  std::vector<uint32_t> files;
  for (int64_t i = 0; i < kTensorsAFile; ++i) files.push_back(job.file_of(queue.next(0)->entry));
  EXPECT_THAT(files, testing::Each(files[0]));
  std::set<size_t> rest;
  for (int64_t i = 0; i < 2 * kTensorsAFile; ++i) rest.insert(queue.next(1)->entry);
  EXPECT_EQ(rest.size(), 2u * kTensorsAFile);
  for (const size_t entry : rest) EXPECT_NE(job.file_of(entry), files[0]);
  EXPECT_FALSE(queue.next(0));
  EXPECT_FALSE(queue.next(1));
}

}  // namespace
}  // namespace ferry
