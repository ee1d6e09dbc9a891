// ferry convert, killed or failing at every one of its file operations: the target is missing or
// what it was, never something in between, and the next run cleans up and succeeds. And two at
// once.
#include <gmock/gmock.h>

#include <filesystem>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "tests/faults/crash.h"
#include "tests/support.h"
#include "tools/convert/convert_job.h"

namespace ferry::test {
namespace {

namespace fs = std::filesystem;
using tool::ConvertOptions;

constexpr const char* kOldFile = "/merges.txt";

class ConvertCrash : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = make_crash_folder();
    target_ = (folder_ / "llama-hf").string();
    options_.source = fixture("megatron/hot_llama");
    options_.target = target_;
    options_.write.overwrite = true;
    options_.write.engine.threads = 1;
    test_.operation = [this] { tool::convert(options_); };
    test_.check = [this] { check(); };
    test_.check_done = [this] {
      check();
      expect_clean(folder_.string());
      EXPECT_TRUE(is_new());
    };
  }
  void TearDown() override {
    fs::remove_all(folder_);
    if (!old_.empty()) fs::remove_all(old_);
  }

  void no_target() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  // An older model, which differs by one file.
  void old_target() {
    if (old_.empty()) {
      old_ = make_crash_folder();
      ConvertOptions options = options_;
      options.target = (old_ / "m").string();
      // A manifest would say that the file below is none of its own.
      options.write.vouchers.manifest = false;
      run_in_child([&] { tool::convert(options); }, {});
      write_file(*posix_file_system(), options.target + kOldFile, "x");
    }
    no_target();
    fs::copy(old_ / "m", target_, fs::copy_options::recursive);
  }

  bool is_new() const { return fs::exists(target_) && !fs::exists(target_ + kOldFile); }
  void check() const {
    if (!fs::exists(target_)) {
      EXPECT_FALSE(replaces_);
      return;
    }
    try {
      const Checkpoint model = open_checkpoint(posix_file_system(), target_);
      EXPECT_EQ(model.catalog.entries.size(), 39u);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    EXPECT_TRUE(fs::exists(target_ + "/config.json"));
  }

  fs::path folder_;
  fs::path old_;  // an older model, once it is asked for
  std::string target_;
  ConvertOptions options_;
  CrashCase test_;
  bool replaces_ = false;
};

TEST_F(ConvertCrash, Killed) {
  test_.prepare = [this] { no_target(); };
  EXPECT_GT(kill_at_every_operation(test_), 30u);
}

TEST_F(ConvertCrash, KilledWhileReplacing) {
  replaces_ = true;
  test_.prepare = [this] { old_target(); };
  EXPECT_GT(kill_at_every_operation(test_), 30u);
}

TEST_F(ConvertCrash, Failing) {
  test_.prepare = [this] { no_target(); };
  EXPECT_GT(fail_at_every_operation(test_, ENOSPC, true), 30u);
  EXPECT_GT(fail_at_every_operation(test_, EROFS, true), 30u);
  replaces_ = true;
  test_.prepare = [this] { old_target(); };
  EXPECT_GT(fail_at_every_operation(test_, EIO, false), 30u);
}

TEST_F(ConvertCrash, FilesThatShrinkWhileTheyAreRead) {
  options_.source = (folder_ / "source").string();
  test_.prepare = [this] {
    no_target();
    fs::copy(fixture("megatron/hot_llama"), options_.source, fs::copy_options::recursive);
  };
  EXPECT_GT(shrink_at_every_read(test_, "/source/"), 10u);
}

TEST_F(ConvertCrash, OneOfSeveralAtOneTargetWins) {
  options_.write.overwrite = false;
  for (int round = 0; round < 5 && !HasFailure(); ++round) {
    no_target();
    int done = 0;
    for (const Ending& ending :
         run_together(std::vector<std::function<void()>>(4, test_.operation), {})) {
      done += ending.failed ? 0 : 1;
      if (ending.failed) {
        EXPECT_THAT(ending.message,
                    testing::AnyOf(testing::HasSubstr("is being "), testing::HasSubstr("exists")));
      }
    }
    EXPECT_EQ(done, 1);
    test_.check_done();
  }
}

TEST_F(ConvertCrash, ShortCountsAndInterruptionsAreContinued) {
  test_.prepare = [this] { no_target(); };
  EXPECT_GT(disturb_every_operation(test_, Fault::short_count), 30u);
  EXPECT_GT(disturb_every_operation(test_, Fault::interrupt), 30u);
}

}  // namespace
}  // namespace ferry::test
