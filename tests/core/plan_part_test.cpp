// The parts of a plan together write what the whole writes.
#include "ckpt/core/plan_part.h"

#include <gtest/gtest.h>

#include "ckpt/engine/engine.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

// Two sources become one target of four chunks over three files: rows of the one behind a
// transposition of the other, and zeros.
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
      entry.chunks.push_back({Box::whole(entry.shape), 0, -1, {}, {file, 0, 48}});
    }
    plan.source = &source;
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
    plan.target.entries[0].chunks.push_back({std::move(box), 0, -1, {}, {file, offset, 27}});
    plan.items.push_back({file, offset, 27, {}});
  }

  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();
  Catalog source;
  Plan plan;
};

TEST(PlanPart, PartsWriteWhatTheWholeWrites) {
  const Job job;
  job.memory->create_folder("whole");
  job.memory->create_folder("parts");
  const std::vector<Digest> digests = run(job.plan, *job.memory, "whole", {});
  for (const std::vector<bool>& wanted :
       {std::vector<bool>{false, true, false}, std::vector<bool>{true, false, true}}) {
    std::vector<Digest> expected;
    for (size_t i = 0; i < digests.size(); ++i) {
      if (wanted[job.plan.items[i].file]) expected.push_back(digests[i]);
    }
    EXPECT_EQ(run(part_of(job.plan, wanted), *job.memory, "parts", {}), expected);
  }
  EXPECT_EQ(job.memory->list("parts"), job.memory->list("whole"));
  for (const std::string& name : job.memory->list("whole")) {
    EXPECT_EQ(job.memory->get("parts/" + name), job.memory->get("whole/" + name)) << name;
  }
}

TEST(PlanPart, OfNothing) {
  const Job job;
  job.memory->create_folder("parts");
  const Plan part = part_of(job.plan, {false, false, false});
  EXPECT_TRUE(run(part, *job.memory, "parts", {}).empty());
  EXPECT_TRUE(job.memory->list("parts").empty());
}

}  // namespace
}  // namespace ferry
