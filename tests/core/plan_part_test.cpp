// The parts of a plan together write what the whole writes.
#include "ckpt/core/plan_part.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ckpt/base/digest.h"
#include "ckpt/base/error.h"
#include "ckpt/engine/run.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

// Two sources become one target of four chunks over three files: the transpose of one, then rows of
// the other, and zeros.
struct Job {
  Job() {
    std::string bytes;
    for (int i = 0; i < 96; ++i) bytes.push_back(static_cast<char>('!' + i));
    memory->put("a", bytes.substr(0, 48));
    memory->put("b", bytes.substr(48));
    source.file_system = memory;
    source.entries = {{"a", DType::u8, {8, 6}, {}, Role::model},
                      {"b", DType::u8, {6, 8}, {}, Role::model}};
    for (Entry& entry : source.entries) {
      const uint32_t file = source.add_file(entry.name, 48);
      entry.chunks.push_back({{Box::whole(entry.shape)}, {}, {file, 0, 48}});
    }
    plan.source = SharedCatalog::borrow(source);
    const Move transposed{1, {0, 0}, {8, 0}, {{6, 0, 1, 1, 1}, {8, 1, 1, 0, 1}}};
    plan.recipes.push_back({{0, 1}, {copy_all({8, 6}), transposed}, {{{16, 0}, {2, 6}}}});
    plan.target.entries.push_back({"t", DType::u8, {18, 6}, {}, Role::model});
    for (uint32_t file = 0; file < 3; ++file) {
      plan.target.files.push_back({"f" + std::to_string(file), 60});
      plan.literals.push_back({file, 0, "head"});
    }
    add_chunk(2, {{0, 0}, {9, 3}}, 4);
    add_chunk(0, {{0, 3}, {9, 3}}, 4);
    add_chunk(2, {{9, 0}, {9, 3}}, 31);
    add_chunk(1, {{9, 3}, {9, 3}}, 4);
    check(plan);
  }

  void add_chunk(uint32_t file, Box box, uint64_t offset) {
    plan.target.entries[0].chunks.push_back({{std::move(box)}, {}, {file, offset, 27}});
    plan.items.push_back({file, offset, 27, {}});
  }

  // Rank 0 writes the chunks of file 1, rank 1 all others.
  void share_by_file() {
    for (Chunk& chunk : plan.target.entries[0].chunks) chunk.rank = chunk.extent.file == 1 ? 0 : 1;
    for (Item& item : plan.items) item.rank = item.file == 1 ? 0 : 1;
  }

  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();
  Catalog source;
  Plan plan;
};

// What the ranks write into files that are there, in place of which the whole was written.
std::vector<Digest> run_part(const Job& job, const Plan& shared, int64_t rank) {
  Plan part = part_of(shared, rank);
  EXPECT_TRUE(part.literals.empty());
  check_part(part);
  std::vector<std::unique_ptr<WritableFile>> files;
  std::vector<WritableFile*> pointers;
  for (const FileInfo& file : part.target.files) {
    files.push_back(job.memory->open_to_write("parts/" + file.path));
    pointers.push_back(files.back().get());
  }
  return run(part, pointers, {});
}

void expect_parts_make_the_whole(const Job& job, int64_t ranks) {
  job.memory->create_folder("whole");
  job.memory->create_folder("parts");
  const std::vector<Digest> digests = run(job.plan, *job.memory, "whole", {});
  for (const FileInfo& file : job.plan.target.files) {
    job.memory->create("parts/" + file.path, file.bytes)
        ->write(0, std::as_bytes(std::span("head", 4)));
  }
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<Digest> expected;
    for (size_t i = 0; i < digests.size(); ++i) {
      if (job.plan.items[i].rank == rank) expected.push_back(digests[i]);
    }
    EXPECT_EQ(run_part(job, job.plan, rank), expected);
  }
  for (const std::string& name : job.memory->list("whole")) {
    EXPECT_EQ(job.memory->get("parts/" + name), job.memory->get("whole/" + name)) << name;
  }
}

TEST(PlanPart, PartsWriteWhatTheWholeWrites) {
  Job job;
  job.share_by_file();
  expect_parts_make_the_whole(job, 2);
}

TEST(PlanPart, SharesWriteWhatTheWholeWrites) {
  for (const int64_t ranks : {1, 2, 3, 9}) {
    Job job;
    share_out(job.plan, ranks);
    expect_parts_make_the_whole(job, ranks);
  }
}

TEST(PlanPart, OfNothing) {
  const Job job;
  const Plan part = part_of(job.plan, 7);
  EXPECT_TRUE(part.target.entries.empty());
  EXPECT_TRUE(part.items.empty());
}

// What a rank's own memory does not hold is not written as zeros.
TEST(PlanPart, WhatTheSourceDoesNotHoldIsRefused) {
  Job job;
  job.share_by_file();
  job.source.entries[0].chunks[0].box = {{0, 0}, {8, 5}};
  EXPECT_THROW(check_part(part_of(job.plan, 1)), Error);
  job.source.entries[0].chunks[0] = {{Box::whole({8, 6}), 0, 0, 0, 47}, {}, {0, 0, 47}};
  EXPECT_THROW(check_part(part_of(job.plan, 1)), Error);
}

// Tensors of `bytes` each, one item a chunk, in files of ten.
Plan plan_of_sizes(const std::vector<int64_t>& bytes) {
  Plan plan;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % 10 == 0) plan.target.files.push_back({"f" + std::to_string(i), 0});
    FileInfo& file = plan.target.files.back();
    const Extent extent{static_cast<uint32_t>(plan.target.files.size() - 1), file.bytes,
                        static_cast<uint64_t>(bytes[i])};
    const Dims shape{bytes[i]};
    plan.target.entries.push_back({"t" + std::to_string(i),
                                   DType::u8,
                                   shape,
                                   {{{Box::whole(shape)}, {}, extent}},
                                   Role::model});
    plan.items.push_back({extent.file, extent.offset, extent.length, {}});
    file.bytes += extent.length;
  }
  return plan;
}

// The busiest rank's bytes over the mean.
double imbalance(const Plan& plan, int64_t ranks) {
  std::vector<double> loads(static_cast<size_t>(ranks));
  double total = 0;
  for (const Entry& entry : plan.target.entries) {
    for (const Chunk& chunk : entry.chunks) {
      loads.at(static_cast<size_t>(chunk.rank)) += static_cast<double>(chunk.extent.length);
      total += static_cast<double>(chunk.extent.length);
    }
  }
  return *std::max_element(loads.begin(), loads.end()) / (total / static_cast<double>(ranks));
}

// Elements, in millions, of the tensors of a 405B model.
std::vector<int64_t> tensors_of_405b() {
  std::vector<int64_t> tensors = {2101, 2101};
  for (int layer = 0; layer < 126; ++layer) {
    for (const int64_t size : {268, 17, 17, 268, 872, 872, 872, 1, 1}) tensors.push_back(size);
  }
  return tensors;
}

// In bf16, as Hugging Face has them: whole.
TEST(PlanPart, SharesHaveAboutTheSameBytes) {
  std::vector<int64_t> sizes;
  for (const int64_t elements : tensors_of_405b()) sizes.push_back(2 * elements);
  for (const int64_t ranks : {2, 8, 64}) {
    Plan plan = plan_of_sizes(sizes);
    share_out(plan, ranks);
    EXPECT_LE(imbalance(plan, ranks), 1.1) << ranks;
  }
}

// With masters and two moments in fp32, as a run has them: of 16 tensor ranks each.
TEST(PlanPart, SharesWithAnOptimizerHaveAboutTheSameBytes) {
  std::vector<int64_t> sizes;
  for (const int64_t elements : tensors_of_405b()) {
    for (const int64_t bytes : {2, 4, 4, 4}) {
      sizes.insert(sizes.end(), 16, bytes * elements * 1000000 / 16);
    }
  }
  for (const int64_t ranks : {8, 64}) {
    Plan plan = plan_of_sizes(sizes);
    share_out(plan, ranks);
    EXPECT_LE(imbalance(plan, ranks), 1.1) << ranks;
    RecordProperty("busiest_over_mean_of_" + std::to_string(ranks),
                   std::to_string(imbalance(plan, ranks)));
  }
}

// Small ones stay with their neighbours: each rank has one row of them.
TEST(PlanPart, SmallItemsStayTogether) {
  Plan plan = plan_of_sizes(std::vector<int64_t>(1000, 7));
  share_out(plan, 6);
  int64_t before = 0;
  for (const Entry& entry : plan.target.entries) {
    EXPECT_GE(entry.chunks[0].rank, before);
    before = entry.chunks[0].rank;
  }
  EXPECT_EQ(before, 5);
  EXPECT_LE(imbalance(plan, 6), 1.01);
}

}  // namespace
}  // namespace ferry
