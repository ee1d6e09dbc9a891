// Saves, replacements and prunes, killed or failing at every one of their file operations, on the
// real file system: the last good checkpoint opens, the tracker names a complete one, and the next
// run cleans up and succeeds.
#include "tests/faults/crash.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/store/prune.h"
#include "ckpt/store/run_store.h"
#include "tests/support.h"

namespace ferry::test {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

// File systems differ in what they can do; all tests run on each kind.
struct Quirks {
  const char* name;
  bool no_exchange, no_locks;
};

class Crash : public testing::TestWithParam<Quirks> {
 protected:
  void SetUp() override {
    test_.named = run_;
    test_.quirks.no_exchange = GetParam().no_exchange;
    test_.quirks.no_locks = GetParam().no_locks;
    test_.check = [this] { check(); };
  }

  // A run with the given iterations, each a real checkpoint, and the tracker at the last.
  void make_run(const std::vector<int64_t>& iterations) {
    folder_.clear();
    fs::create_directories(run_);
    for (const int64_t iteration : iterations) {
      fs::copy(kSource, fs::path(run_) / iteration_folder_name(iteration));
    }
    write_file(*files_, run_ + "/" + std::string(kTrackerName), std::to_string(iterations.back()));
  }

  // What a saver does, with files more than the source: one that marks the new one, and one large
  // enough for the ways of writing that small ones do not take.
  void save(int64_t iteration) const {
    BeginOptions options;
    options.overwrite = true;
    StagedIteration staged = RunStore(files_, run_).begin(iteration, options);
    for (const std::string& name : files_->list(kSource)) {
      staged.write_file(name, read_file(*files_, kSource + "/" + name, 1 << 20));
    }
    files_->create_folder(staged.path() + "/tokenizer");
    staged.write_file("tokenizer/large", kLarge);
    staged.write_file("tokenizer/new", "x");
    staged.commit();
  }

  // What is there under an iteration's name is whole: of the source, with the new file or without.
  void check() const {
    expect_good_run(run_);
    for (const std::string& name : files_->list(run_)) {
      if (!iteration_of(name)) continue;
      std::vector<std::string> found = files_->list(run_ + "/" + name);
      std::erase(found, "tokenizer");
      EXPECT_EQ(found, files_->list(kSource)) << name;
      EXPECT_NO_THROW(open_checkpoint(files_, run_ + "/" + name)) << name;
      const std::string large = run_ + "/" + name + "/tokenizer/large";
      if (fs::exists(large)) {
        EXPECT_TRUE(read_file(*files_, large, 1 << 20) == kLarge) << name;
      }
    }
  }

  std::string tracker() const {
    return read_file(*files_, run_ + "/" + std::string(kTrackerName), 100);
  }
  bool is_new(int64_t iteration) const {
    return fs::exists(fs::path(run_) / iteration_folder_name(iteration) / "tokenizer/new");
  }
  std::vector<int64_t> left() const {
    std::vector<int64_t> iterations;
    for (const std::string& name : files_->list(run_)) {
      if (const auto iteration = iteration_of(name)) iterations.push_back(*iteration);
    }
    return iterations;
  }

  void set_up_save() {
    test_.prepare = [this] { make_run({5}); };
    test_.operation = [this] { save(10); };
    test_.check_done = [this] {
      check();
      expect_clean(run_);
      EXPECT_EQ(tracker(), "10");
      EXPECT_TRUE(is_new(10));
    };
  }
  void set_up_replacement() {
    test_.prepare = [this] { make_run({5, 10}); };
    test_.operation = [this] { save(10); };
    test_.check_done = [this] {
      check();
      expect_clean(run_);
      EXPECT_EQ(tracker(), "10");
      EXPECT_TRUE(is_new(10));
    };
  }
  // The run folder itself is missing at first.
  void set_up_first_save() {
    test_.prepare = [this] {
      make_run({5});
      fs::remove_all(run_);
    };
    test_.operation = [this] { save(10); };
    test_.check = [this] {
      if (fs::exists(run_)) check();
    };
    test_.check_done = [this] {
      check();
      expect_clean(folder_.path());
      expect_clean(run_);
      EXPECT_EQ(tracker(), "10");
    };
  }
  void set_up_prune() {
    test_.prepare = [this] { make_run({1, 2, 3, 4, 5}); };
    test_.operation = [this] { prune(files_, run_, {1, 2, false}, {}); };
    test_.check_done = [this] {
      check();
      expect_clean(run_);
      EXPECT_THAT(left(), ElementsAre(2, 4, 5));
    };
  }

  const std::string kLarge = std::string(70'001, 'a') + std::string(70'002, 'b');
  const std::string kSource = fixture("megatron/hot_llama/iter_0000005");
  std::shared_ptr<const FileSystem> files_ = posix_file_system({PageWrites::always});
  const CrashFolder folder_;
  const std::string run_ = folder_.path("run");
  CrashCase test_;
};

// The numbers say that the faults are met at all: a save makes a lock, four files and a folder, and
// renames twice.
TEST_P(Crash, KilledSave) {
  set_up_save();
  EXPECT_GT(kill_at_every_operation(test_), 40u);
}

TEST_P(Crash, KilledReplacement) {
  set_up_replacement();
  EXPECT_GT(kill_at_every_operation(test_), 40u);
}

TEST_P(Crash, KilledFirstSave) {
  set_up_first_save();
  EXPECT_GT(kill_at_every_operation(test_), 30u);
}

TEST_P(Crash, KilledPrune) {
  set_up_prune();
  EXPECT_GT(kill_at_every_operation(test_), 25u);
}

TEST_P(Crash, FailingSave) {
  set_up_save();
  EXPECT_GT(fail_at_every_operation(test_, EIO, false), 40u);
  EXPECT_GT(fail_at_every_operation(test_, ENOSPC, true), 40u);
  EXPECT_GT(fail_at_every_operation(test_, EROFS, true), 40u);
}

TEST_P(Crash, FailingReplacement) {
  set_up_replacement();
  EXPECT_GT(fail_at_every_operation(test_, EIO, false), 40u);
  EXPECT_GT(fail_at_every_operation(test_, ENOSPC, true), 40u);
}

TEST_P(Crash, FailingPrune) {
  set_up_prune();
  EXPECT_GT(fail_at_every_operation(test_, EIO, false), 25u);
  EXPECT_GT(fail_at_every_operation(test_, EROFS, true), 25u);
}

TEST_P(Crash, ShortCountsAndInterruptionsAreContinued) {
  set_up_replacement();
  EXPECT_GT(disturb_every_operation(test_, Fault::short_count), 40u);
  EXPECT_GT(disturb_every_operation(test_, Fault::interrupt), 40u);
  set_up_prune();
  disturb_every_operation(test_, Fault::interrupt);
}

INSTANTIATE_TEST_SUITE_P(FileSystems, Crash,
                         testing::Values(Quirks{"local", false, false},
                                         Quirks{"without_exchange", true, false},
                                         Quirks{"without_locks", false, true},
                                         Quirks{"without_both", true, true}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace ferry::test
