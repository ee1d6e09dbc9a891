// Ranks that run one plan together write what one writes, and fail alike.
#include "ckpt/group/group_run.h"

#include <gtest/gtest.h>

#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/run.h"
#include "ckpt/format/hugging_face/safetensors_plan.h"
#include "ckpt/integrity/manifest/plan_manifest.h"
#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

Plan plan_of(const Checkpoint& checkpoint) {
  Plan plan = plan_safetensors(checkpoint.catalog, {true, std::nullopt, 20'000}).plan;
  complete_items(plan);
  check(plan);
  return plan;
}

// What each rank returned, or the message that it failed with.
struct Outcome {
  std::vector<Digest> digests;
  std::string error;
};

std::vector<Outcome> run_by(int ranks, const Plan& plan, const FileSystem& file_system) {
  const auto groups = thread_groups(ranks);
  std::vector<Outcome> outcomes(groups.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < groups.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        outcomes[i].digests = run_together(plan, file_system, "out", *groups[i], {});
      } catch (const Error& error) {
        outcomes[i].error = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST(GroupRun, RanksWriteWhatOneWrites) {
  for (const char* name : {"llama_tp2dp2_dpr", "llama_legacy_tp2pp2", "hot_mixtral"}) {
    const Checkpoint checkpoint =
        open_checkpoint(posix_file_system(), std::string(FERRY_FIXTURES "/megatron/") + name);
    const Plan plan = plan_of(checkpoint);
    const MemoryFileSystem one;
    one.create_folder("out");
    const std::vector<Digest> digests = run(plan, one, "out", {});
    for (const int ranks : {2, 3, 7}) {
      const MemoryFileSystem many;
      many.create_folder("out");
      for (const Outcome& outcome : run_by(ranks, plan, many)) {
        EXPECT_EQ(outcome.error, "");
        EXPECT_EQ(outcome.digests, digests);
      }
      EXPECT_EQ(many.list("out"), one.list("out"));
      for (const std::string& file : one.list("out")) {
        EXPECT_EQ(many.get("out/" + file), one.get("out/" + file)) << name << " " << file;
      }
    }
  }
}

TEST(GroupRun, OneRanksErrorIsEveryones) {
  const Checkpoint checkpoint =
      open_checkpoint(posix_file_system(), FERRY_FIXTURES "/megatron/hot_llama");
  const Plan plan = plan_of(checkpoint);
  for (const uint64_t fail_at : {1, 12, 25, 40}) {
    auto memory = std::make_shared<MemoryFileSystem>();
    memory->create_folder("out");
    const FaultFileSystem failing(memory, fail_at, ErrorKind::io);
    const std::vector<Outcome> outcomes = run_by(3, plan, failing);
    EXPECT_NE(outcomes[0].error, "") << fail_at;
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.error, outcomes[0].error);
  }
}

}  // namespace
}  // namespace ferry
