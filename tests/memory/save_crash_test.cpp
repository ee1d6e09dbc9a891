// The asynchronous saver, killed or failing at every one of its file operations, on the real file
// system: the last good checkpoint opens with what it held, the tracker names a complete one, and
// the next run cleans up and succeeds.
#include <gmock/gmock.h>

#include <cerrno>
#include <filesystem>

#include "ckpt/memory/async_saver.h"
#include "ckpt/store/run_folder.h"
#include "tests/faults/crash.h"
#include "tests/memory/random_model.h"

namespace ferry::test {
namespace {

namespace fs = std::filesystem;

class SaveCrash : public testing::Test {
 protected:
  void SetUp() override {
    test_.named = run_;
    test_.prepare = [this] {
      folder_.clear();
      fs::create_directories(run_);
      run_in_child([this] { save({1}, 1); }, {});
    };
    test_.check = [this] { check(); };
    test_.check_done = [this] {
      check();
      expect_clean(run_);
      EXPECT_EQ(read_file(*files_, run_ + "/" + std::string(kTrackerName), 10), "3");
    };
  }

  static RandomModel model(int64_t iteration) {
    const auto seed = static_cast<uint32_t>(iteration);
    return {{"weight", random_tensor(DType::f32, {16, 9}, seed)},
            {"bias", random_tensor(DType::bf16, {16}, seed + 1)}};
  }

  // Each rank on a thread of its own; the first error of any.
  void save(const std::vector<int64_t>& iterations, int ranks) const {
    const auto errors = on_ranks(ranks, [&](std::shared_ptr<Group> group) {
      const int rank = group->rank();
      AsyncSaverOptions options;
      options.save.engine.threads = 1;
      options.save.begin.overwrite = true;
      options.most_in_flight = 2;
      AsyncSaver saver(files_, run_, std::move(group), options);
      for (const int64_t iteration : iterations) {
        const RandomModel own = model(iteration);
        saver.save(part_of_model(own, iteration, rank, ranks)).wait();
      }
      saver.finish();
    });
    if (!errors[0].empty()) fail(ErrorKind::io, "{}", errors[0]);
  }

  // All that has an iteration's name holds that iteration.
  void check() const {
    expect_good_run(run_);
    for (const std::string& name : files_->list(run_)) {
      if (const auto iteration = iteration_of(name)) {
        expect_holds(files_, run_ + "/" + name, model(*iteration));
      }
    }
  }

  const std::shared_ptr<const FileSystem> files_ = posix_file_system();
  const CrashFolder folder_;
  const std::string run_ = folder_.path("run");
  CrashCase test_;
};

TEST_F(SaveCrash, Killed) {
  test_.operation = [this] { save({2, 3}, 1); };
  EXPECT_GT(kill_at_every_operation(test_), 60u);
}

TEST_F(SaveCrash, KilledWithSeveralRanks) {
  test_.operation = [this] { save({3}, 2); };
  EXPECT_GT(kill_at_every_operation(test_), 40u);
}

TEST_F(SaveCrash, KilledWhileReplacing) {
  test_.operation = [this] { save({1, 3}, 1); };
  EXPECT_GT(kill_at_every_operation(test_), 60u);
}

TEST_F(SaveCrash, FailingDisks) {
  test_.operation = [this] { save({2, 3}, 1); };
  EXPECT_GT(fail_at_every_operation(test_, ENOSPC, true), 60u);
  EXPECT_GT(fail_at_every_operation(test_, EROFS, true), 60u);
  test_.operation = [this] { save({3}, 2); };
  EXPECT_GT(fail_at_every_operation(test_, EIO, false), 40u);
}

TEST_F(SaveCrash, ShortCountsAndInterruptionsAreContinued) {
  test_.operation = [this] { save({3}, 2); };
  EXPECT_GT(disturb_every_operation(test_, Fault::short_count), 40u);
  EXPECT_GT(disturb_every_operation(test_, Fault::interrupt), 40u);
}

}  // namespace
}  // namespace ferry::test
