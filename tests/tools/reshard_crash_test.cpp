// ferry reshard, killed or failing at every one of its file operations, on the real file system:
// the last good checkpoint opens, the tracker names a complete one, and the next run cleans up and
// succeeds. A source that is cut short while it is read, and several at one target.
#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/integrity/verify.h"
#include "ckpt/store/run_folder.h"
#include "tests/faults/crash.h"
#include "tests/support.h"
#include "tools/reshard/reshard_job.h"

namespace ferry::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using tool::ReshardFormat;
using tool::ReshardOptions;

// What is written, and into what.
struct Target {
  const char* name;
  const char* source;
  ReshardFormat to;
  size_t tensors;
  bool in_run;  // into a run that has an earlier iteration; otherwise nothing is there
};

class ReshardCrash : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    folder_ = make_crash_folder();
    target_ = (folder_ / "small").string();
    options_.source = (folder_ / "source").string();
    options_.target = target_;
    options_.to = GetParam().to;
    options_.only = {"*final_layernorm*"};  // few operations, each of which is a run of its own
    options_.write.overwrite = true;
    options_.write.engine.threads = 1;
    test_.prepare = [this] { prepare(); };
    test_.operation = [this] { tool::reshard(options_); };
    test_.check = [this] { check(); };
    test_.check_done = [this] { check_done(); };
  }
  void TearDown() override { fs::remove_all(folder_); }

  void prepare() const {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::copy(fixture(GetParam().source), options_.source, fs::copy_options::recursive);
    if (!GetParam().in_run) return;
    fs::create_directories(target_);
    fs::copy(options_.source + "/iter_0000005", target_ + "/iter_0000003");
    write_file(*files_, target_ + "/" + std::string(kTrackerName), "3");
  }

  // All that can be opened by its name is whole, and what was there opens.
  void check() const {
    if (!fs::exists(target_)) {
      EXPECT_FALSE(GetParam().in_run);
      return;
    }
    if (GetParam().to != ReshardFormat::dcp) expect_good_run(target_);
    if (GetParam().in_run) {
      EXPECT_NO_THROW(open_checkpoint(files_, target_ + "/iter_0000003"));
    }
    const std::string written =
        GetParam().to == ReshardFormat::dcp ? target_ : target_ + "/iter_0000005";
    if (fs::exists(written)) expect_sound(written);
  }

  void check_done() const {
    check();
    expect_clean(folder_.string());
    expect_clean(target_);
    const Checkpoint checkpoint = open_checkpoint(files_, target_);
    if (GetParam().to != ReshardFormat::dcp) {
      EXPECT_EQ(checkpoint.iteration, 5);
    }
    EXPECT_EQ(checkpoint.catalog.entries.size(), GetParam().tensors);
  }

  void expect_sound(const std::string& path) const {
    try {
      const VerifyReport report = verify(files_, path, {});
      EXPECT_TRUE(report.has_manifest);
      for (const Problem& problem : report.problems) ADD_FAILURE() << problem.what;
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }

  const std::shared_ptr<const FileSystem> files_ = posix_file_system();
  fs::path folder_;
  std::string target_;
  ReshardOptions options_;
  CrashCase test_;
};

class ReshardFaults : public ReshardCrash {};  // every kind of fault, at one target

TEST_P(ReshardCrash, Killed) { EXPECT_GT(kill_at_every_operation(test_), 30u); }

TEST_P(ReshardFaults, Failing) {
  EXPECT_GT(fail_at_every_operation(test_, ENOSPC, true), 30u);
  EXPECT_GT(fail_at_every_operation(test_, EROFS, true), 30u);
  EXPECT_GT(fail_at_every_operation(test_, EIO, false), 30u);
}

TEST_P(ReshardFaults, ShortCountsAndInterruptionsAreContinued) {
  EXPECT_GT(disturb_every_operation(test_, Fault::short_count), 30u);
  EXPECT_GT(disturb_every_operation(test_, Fault::interrupt), 30u);
}

TEST_P(ReshardFaults, FilesThatShrinkWhileTheyAreRead) {
  EXPECT_GT(shrink_at_every_read(test_, "/source/"), 10u);
}

TEST_P(ReshardCrash, OneOfSeveralAtOneTargetWins) {
  options_.write.overwrite = false;
  for (int round = 0; round < 5 && !HasFailure(); ++round) {
    prepare();
    const std::vector<Ending> endings =
        run_together(std::vector<std::function<void()>>(4, test_.operation), {});
    int done = 0;
    for (const Ending& ending : endings) {
      done += ending.failed ? 0 : 1;
      if (ending.kind == "busy") {
        EXPECT_THAT(ending.message, HasSubstr("is being "));
      } else if (ending.failed) {
        EXPECT_THAT(ending.message, HasSubstr("exists"));
      }
    }
    EXPECT_EQ(done, 1);
    check_done();
  }
}

const Target kRun{"run", "megatron/hot_llama", ReshardFormat::torch_dist, 1, true};

INSTANTIATE_TEST_SUITE_P(
    Targets, ReshardCrash,
    testing::Values(kRun,
                    Target{"new_run", "megatron/hot_llama", ReshardFormat::torch_dist, 1, false},
                    Target{"dcp", "megatron/hot_llama", ReshardFormat::dcp, 1, false},
                    Target{"legacy", "megatron/llama_tp2dp2_dpr", ReshardFormat::torch, 4, true}),
    [](const auto& each) { return std::string(each.param.name); });
INSTANTIATE_TEST_SUITE_P(Targets, ReshardFaults, testing::Values(kRun));

}  // namespace
}  // namespace ferry::test
