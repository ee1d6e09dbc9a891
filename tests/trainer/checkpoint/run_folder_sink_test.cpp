// How runs save.
#include <chrono>
#include <fstream>
#include <thread>

#include "ckpt/io/forwarding_file_system.h"
#include "ckpt/io/staging/write_lock.h"
#include "ckpt/megatron/state_of.h"
#include "ckpt/store/prune.h"
#include "tests/trainer/language/runs.h"
#include "trainer/checkpoint/free_space.h"

namespace ferry::test {
namespace {

class Saves : public testing::Test {
 protected:
  std::string run(const std::string& name, const std::string& more) const {
    const std::string own = scratch_.path(name);
    return run_of("--load " + run_fixture("f32_qwen3") + " --save " + own + common_words(scratch_) +
                  "--eval-iters 0 --save-interval 5 --exit-interval 25 " + more);
  }
  std::vector<std::string> left_in(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(scratch_.path(name))) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  const Scratch scratch_;
};

TEST_F(Saves, AsynchronousOnesHoldWhatWasThereThen) {
  for (const std::string layout : {layout::kAlone, layout::kAll}) {
    run("sync", layout);
    run("async", layout + "--async-save");
    run("torch", layout + "--ckpt-format torch");
    run("async_torch", layout + "--ckpt-format torch --async-save");
    for (const char* iteration : {"10", "15", "20", "25"}) {
      const std::string folder = std::string("/iter_00000") + iteration;
      for (const char* other : {"async", "torch", "async_torch"}) {
        EXPECT_THAT(differences(scratch_.path("sync") + folder, scratch_.path(other) + folder),
                    testing::IsEmpty())
            << layout << other << iteration;
      }
    }
  }
}

// Also where nothing else is due.
TEST_F(Saves, OneIsMadeBeforeBatchesGrow) {
  std::string words = "--load " + run_fixture("f32_qwen3") + " --save " + scratch_.path("run") +
                      common_words(scratch_) +
                      "--eval-iters 0 --finetune --rampup-batch-size 4 4 20 --save-interval 100 "
                      "--exit-interval 8";
  const std::pair<std::string, std::string> kBySamples[] = {
      {"--train-iters 30", "--train-samples 240"},
      {"--lr-decay-iters 100", "--lr-decay-samples 800"},
      {"--lr-warmup-iters 5", "--lr-warmup-samples 40"}};
  for (const auto& [from, to] : kBySamples) words.replace(words.find(from), from.size(), to);
  run_of(words);
  EXPECT_THAT(left_in("run"), testing::IsSupersetOf({"iter_0000005", "iter_0000008"}));
  EXPECT_THAT(left_in("run"), testing::SizeIs(3));
}

// The run's steps change what is being saved as soon as they may.
TEST_F(Saves, ThoseInPiecesHoldTheSame) {
  for (const std::string layout : {layout::kAlone, layout::kData, layout::kAll}) {
    for (const std::string format : {"", "--ckpt-format torch "}) {
      const std::string both = layout + format + "--non-persistent-save-interval 3 ";
      const std::string whole = run("whole", both + "--async-save");
      const std::string pieces = run("pieces", both + "--async-save --staging-memory 64KiB");
      EXPECT_THAT(whole, testing::Not(testing::HasSubstr("pieces")));
      EXPECT_THAT(whole, testing::HasSubstr("staging: saves take up to"));
      EXPECT_THAT(pieces, testing::HasSubstr("staging: --staging-memory allows less"));
      for (const char* iteration : {"iter_0000010", "iter_0000015", "iter_0000020", "iter_0000025",
                                    "non_persistent/iter_0000024"}) {
        const std::string folder = std::string("/") + iteration;
        EXPECT_THAT(differences(scratch_.path("whole") + folder, scratch_.path("pieces") + folder),
                    testing::IsEmpty())
            << both << iteration;
      }
      for (const char* name : {"whole", "pieces"}) fs::remove_all(scratch_.path(name));
    }
  }
}

TEST_F(Saves, RankFoldersHaveTheFilesOfMegatrons) {
  run("run", std::string(layout::kAll) + "--ckpt-format torch");
  std::vector<std::string> files;
  const fs::path folder = scratch_.path("run/iter_0000025");
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), folder));
  }
  std::vector<std::string> expected{"ferry.manifest.json"};
  for (const std::string rank : {"00_000", "00_001", "01_000", "01_001"}) {
    for (const char* file : {"/model_optim_rng.pt", "/distrib_optim.pt"}) {
      expected.push_back("mp_rank_" + rank + file);
    }
  }
  EXPECT_THAT(files, testing::UnorderedElementsAreArray(expected));
}

// Megatron-LM identifies parameters by the order of groups: other rates before no decay.
TEST_F(Saves, GroupsOfParametersStandInMegatronsOrder) {
  run("run", "--decoupled-lr 5e-4 --ckpt-format torch ");
  const RunState state = state_of(open_checkpoint(posix_file_system(), scratch_.path("run")));
  const Value groups = state.param_groups.front().value;
  std::vector<double> rates, decays;
  for (size_t i = 0; i < groups.size(); ++i) {
    rates.push_back(groups[i].get("max_lr").real().value_or(0));
    decays.push_back(groups[i].get("wd_mult").real().value_or(-1));
  }
  EXPECT_THAT(rates, testing::ElementsAre(1e-3, 5e-4, 1e-3));
  EXPECT_THAT(decays, testing::ElementsAre(1, 1, 0));
}

// Without which Megatron-LM does not load the optimizer: experts' biases are not decayed.
TEST_F(Saves, BiasesOfExpertsHaveAGroupOfTheirOwn) {
  run_of("--load " + run_fixture("g_f32_gptoss") + " --save " + scratch_.path("run") +
         common_words(scratch_) + layout::kExpert +
         "--eval-iters 0 --save-interval 6 --exit-interval 6 ");
  const RunState state = state_of(open_checkpoint(posix_file_system(), scratch_.path("run")));
  ASSERT_EQ(state.param_groups.size(), 2u);
  const Value groups = state.param_groups.back().value;
  ASSERT_EQ(groups.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(groups[i].get("is_expert_parallel").boolean(), true);
    EXPECT_EQ(groups[i].get("wd_mult").real(), i == 0 ? 1 : 0);
  }
}

// At the layout that saved and at others, as from a checkpoint of the other format.
TEST_F(Saves, RankFoldersAreGoneOnFrom) {
  run("dist", layout::kAll);
  run("torch", std::string(layout::kAll) + "--ckpt-format torch");
  for (const std::string layout : {layout::kAll, layout::kAlone, layout::kPipeline}) {
    for (const char* name : {"dist", "torch"}) {
      const std::string to = scratch_.path(std::string("from_") + name);
      fs::remove_all(to);
      run_of("--load " + scratch_.path(name) + " --save " + to + common_words(scratch_) +
             "--eval-iters 0 --save-interval 30 " + layout);
    }
    EXPECT_THAT(differences(scratch_.path("from_dist"), scratch_.path("from_torch")),
                testing::IsEmpty())
        << layout;
  }
}

TEST_F(Saves, RetentionLeavesWhatItSays) {
  for (const std::string mode : {"", "--async-save ", "--async-save --ckpt-format torch "}) {
    run("all", mode);
    EXPECT_THAT(left_in("all"),
                testing::UnorderedElementsAre("iter_0000010", "iter_0000015", "iter_0000020",
                                              "iter_0000025", "latest_checkpointed_iteration.txt"));
    run("some", mode + "--save-retain-interval 10 ");
    EXPECT_THAT(left_in("some"),
                testing::UnorderedElementsAre("iter_0000010", "iter_0000020", "iter_0000025",
                                              "latest_checkpointed_iteration.txt"));
    run("two", mode + "--keep-last 2 ");
    EXPECT_THAT(left_in("two"), testing::UnorderedElementsAre("iter_0000020", "iter_0000025",
                                                              "latest_checkpointed_iteration.txt"));
    for (const char* name : {"all", "some", "two"}) fs::remove_all(scratch_.path(name));
  }
}

// As Megatron-LM: what earlier processes left stays, but the one that the tracker names.
TEST_F(Saves, RetentionOfAnIntervalLeavesThePast) {
  run("run", "");  // 10, 15, 20 and 25
  const std::string own = "--load " + scratch_.path("run") + " --save " + scratch_.path("run") +
                          common_words(scratch_) + "--eval-iters 0 --save-interval 1 ";
  run_of(own + "--save-retain-interval 10 --exit-interval 29 ");
  EXPECT_THAT(left_in("run"),
              testing::UnorderedElementsAre("iter_0000010", "iter_0000015", "iter_0000020",
                                            "iter_0000029", "latest_checkpointed_iteration.txt"));
  // What the tracker names goes, too, where a later one of another folder is gone on from.
  run_of("--load " + scratch_.path("run") + " --save " + scratch_.path("other") +
         common_words(scratch_) + "--eval-iters 0 --save-interval 30 ");
  fs::rename(scratch_.path("other") + "/iter_0000030", scratch_.path("run") + "/iter_0000030");
  run_of(
      own +
      "--ckpt-step 30 --save-retain-interval 10 --train-iters 31 --override-opt-param-scheduler ");
  EXPECT_THAT(left_in("run"), testing::UnorderedElementsAre(
                                  "iter_0000010", "iter_0000015", "iter_0000020", "iter_0000030",
                                  "iter_0000031", "latest_checkpointed_iteration.txt"));
  // And what is gone back to stays.
  run_of(own + "--ckpt-step 15 --save-retain-interval 10 --exit-interval 17 ");
  EXPECT_THAT(left_in("run"),
              testing::UnorderedElementsAre("iter_0000010", "iter_0000015", "iter_0000017",
                                            "iter_0000020", "iter_0000030", "iter_0000031",
                                            "latest_checkpointed_iteration.txt"));
}

// A folder that goes is renamed first: iteration 15 takes longer than five steps do.
class SlowRenames final : public ForwardingFileSystem {
 public:
  SlowRenames() : ForwardingFileSystem(posix_file_system()) {}
  void rename(const std::string& from, const std::string& to) const override {
    if (from.ends_with("iter_0000015")) std::this_thread::sleep_for(std::chrono::seconds(2));
    ForwardingFileSystem::rename(from, to);
  }
};

// A run that begins anew in the folder of another one, whose iterations go and come again.
TEST_F(Saves, WaitForThoseOfTheirNameToGo) {
  for (const std::string mode : {"", "--async-save "}) {
    const std::string words = "--load " + run_fixture("f32_qwen3") + " --save " +
                              scratch_.path("old") + common_words(scratch_) +
                              "--eval-iters 0 --save-interval 5 --exit-interval 20 " + mode;
    run_of(words);
    const auto slow = std::make_shared<SlowRenames>();
    EXPECT_EQ(outcome_of(words + "--keep-last 1 ", test_device, slow).problem, "") << mode;
    EXPECT_THAT(left_in("old"),
                testing::UnorderedElementsAre("iter_0000020", "latest_checkpointed_iteration.txt"));
    fs::remove_all(scratch_.path("old"));
  }
}

TEST_F(Saves, LeaveThoseThatTheRunDoesNotGoOnFrom) {
  const std::string tracker = "latest_checkpointed_iteration.txt";
  run("run", "");  // 10, 15, 20 and 25
  const std::string printed = run("run", "--save-interval 3 --keep-last 1 --exit-interval 12 ");
  EXPECT_THAT(printed,
              testing::HasSubstr("outside this run's history, of iterations 10, 15, 20, 25: "));
  EXPECT_THAT(left_in("run"),
              testing::UnorderedElementsAre("iter_0000010", "iter_0000012", "iter_0000015",
                                            "iter_0000020", "iter_0000025", tracker));
  // From here on 10 to 15 are the run's past.
  const std::string own = "--load " + scratch_.path("run") + " --save " + scratch_.path("run") +
                          common_words(scratch_) +
                          "--eval-iters 0 --save-interval 5 --keep-last 1 ";
  EXPECT_THAT(run_of(own + "--ckpt-step 15 --exit-interval 20 "),
              testing::HasSubstr("of iterations 20, 25: "));
  EXPECT_THAT(left_in("run"),
              testing::UnorderedElementsAre("iter_0000020", "iter_0000025", tracker));
  EXPECT_THAT(run_of(own + "--ckpt-step 25 --exit-interval 30 "),
              testing::Not(testing::HasSubstr("outside this run's history")));
  EXPECT_THAT(left_in("run"), testing::UnorderedElementsAre("iter_0000030", tracker));
}

TEST_F(Saves, OfTwoRunsInOneFolderTheSecondIsRefused) {
  const std::string path = scratch_.path("run");
  const std::string words = "--load " + run_fixture("f32_qwen3") + " --save " + path +
                            common_words(scratch_) +
                            "--eval-iters 0 --save-interval 5 --exit-interval 10 ";
  fs::create_directories(path);
  {
    const WriteLock first(posix_file_system(), path + "/training");
    EXPECT_THAT(outcome_of(words).problem,
                testing::AllOf(testing::HasSubstr("another run saves in " + path),
                               testing::HasSubstr("wait until it is done")));
  }
  run_of(words);
  EXPECT_THAT(left_in("run"),
              testing::UnorderedElementsAre("iter_0000010", "latest_checkpointed_iteration.txt"));
}

// Where a job of another host takes the folder over when iteration 10 is there.
class TakenOver final : public ForwardingFileSystem {
 public:
  TakenOver() : ForwardingFileSystem(posix_file_system()) {}
  void rename(const std::string& from, const std::string& to) const override {
    inner().rename(from, to);
    if (!to.ends_with("/iter_0000010")) return;
    LockRecord next;
    next.owner = {"node7", "another-boot", "pid:[1]", 42, 99};
    next.token = "ffeeddccbbaa9988";
    std::ofstream(join(split_path(to).parent, ".ferry-lock.training")) << next.to_text();
  }
};

TEST_F(Saves, ARunWhoseFolderIsTakenOverEnds) {
  const std::string path = scratch_.path("run");
  for (const std::string mode : {"", "--async-save "}) {
    const std::string words = "--load " + run_fixture("f32_qwen3") + " --save " + path +
                              common_words(scratch_) + layout::kAll +
                              "--eval-iters 0 --save-interval 5 --exit-interval 20 " + mode;
    EXPECT_THAT(
        outcome_of(words, test_device, std::make_shared<TakenOver>()).problem,
        testing::AllOf(testing::HasSubstr("another run saves in " + path),
                       testing::HasSubstr("process 42 on node7, as this process seemed dead")));
    // An asynchronous save may start before the one of iteration 10 is on disk.
    if (mode.empty()) {
      EXPECT_FALSE(fs::exists(path + "/iter_0000015"));
    }
    fs::remove_all(path);
  }
}

// A disk of so many bytes, which hold nothing but a folder.
class SmallDisk final : public ForwardingFileSystem {
 public:
  SmallDisk(std::string folder, uint64_t bytes)
      : ForwardingFileSystem(posix_file_system()), folder_(std::move(folder)), bytes_(bytes) {}

  std::optional<FreeSpace> free_space(const std::string&) const override {
    const uint64_t used = bytes_in(folder_);
    return FreeSpace{used < bytes_ ? bytes_ - used : 0, true};
  }
  static uint64_t bytes_in(const std::string& folder) {
    uint64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) bytes += entry.file_size();
    }
    return bytes;
  }

 private:
  std::string folder_;
  uint64_t bytes_;
};

TEST_F(Saves, MayTakeTheirRoomFromOlderOnes) {
  run("run", "");
  const std::string path = scratch_.path("run");
  const uint64_t one = SmallDisk::bytes_in(path + "/iter_0000025");
  std::string printed;
  const auto with_disk_of = [&](uint64_t bytes) {
    printed.clear();
    make_room(std::make_shared<SmallDisk>(path, bytes), path, 10, {},
              [&](std::string_view text) { printed += text; });
    return left_in("run");
  };
  EXPECT_EQ(with_disk_of(6 * one).size(), 5u);
  EXPECT_EQ(printed, "");
  // 10, 15, 20 and 25 take four times as much; 10 and 20 are to stay.
  EXPECT_THAT(with_disk_of(4 * one + one / 2),
              testing::UnorderedElementsAre("iter_0000010", "iter_0000020", "iter_0000025",
                                            "latest_checkpointed_iteration.txt"));
  EXPECT_THAT(printed, testing::HasSubstr("iter_0000015"));
  EXPECT_EQ(with_disk_of(one).size(), 4u);
  // A folder that is none yet.
  make_room(posix_file_system(), scratch_.path("none"), std::nullopt, {},
            [](std::string_view text) { FAIL() << text; });
}

TEST_F(Saves, TakeTheirRoomWhenAsked) {
  const std::string printed =
      run("run", "--free-space-for-saves --async-save " + std::string(layout::kAll));
  EXPECT_EQ(printed.find("could not free space"), std::string::npos);
  EXPECT_EQ(printed.find("removed "), std::string::npos);
  EXPECT_EQ(left_in("run").size(), 5u);
}

TEST_F(Saves, NonPersistentOnesStandApart) {
  run("run",
      "--save-interval 20 --non-persistent-save-interval 2 --non-persistent-ckpt-type global");
  EXPECT_THAT(left_in("run"),
              testing::UnorderedElementsAre("iter_0000020", "iter_0000025", "non_persistent",
                                            "latest_checkpointed_iteration.txt"));
  EXPECT_THAT(left_in("run/non_persistent"), testing::Contains("iter_0000024"));
  EXPECT_THAT(left_in("run/non_persistent"), testing::Not(testing::Contains("iter_0000022")));
}

TEST_F(Saves, AreLoggedInProgressTxt) {
  run("run", "--log-progress --async-save");
  const std::string text = read_text(scratch_.path("run") + "/progress.txt");
  EXPECT_THAT(text, testing::HasSubstr("Starting job"));
  for (const char* iteration : {"10", "15", "20", "25"}) {
    EXPECT_THAT(text,
                testing::HasSubstr(std::string("Saved async checkpoint\tIteration: ") + iteration));
  }
}

}  // namespace
}  // namespace ferry::test
