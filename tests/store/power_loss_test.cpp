// Power lost at every operation of a save, a replacement and a prune, with whatever subset of the
// unsynced changes a disk may keep: a good checkpoint opens, and what was committed is there.
#include "tests/store/power_loss.h"

#include <gmock/gmock.h>

#include <random>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/store/prune.h"
#include "ckpt/store/run_store.h"
#include "tests/support.h"

namespace ferry::test {
namespace {

using testing::ElementsAre;

class PowerLoss : public testing::Test {
 protected:
  // The files of a real checkpoint.
  static const std::map<std::string, std::string>& source() {
    static const auto files = [] {
      std::map<std::string, std::string> content;
      const auto disk = posix_file_system();
      const std::string folder = fixture("megatron/hot_llama/iter_0000005");
      for (const std::string& name : disk->list(folder)) {
        content[name] = read_file(*disk, folder + "/" + name, 1 << 20);
      }
      return content;
    }();
    return files;
  }

  static void put(const FileSystem& disk, const std::string& folder) {
    for (const auto& [name, content] : source()) write_file(disk, join(folder, name), content);
  }

  void make_run(const std::vector<int64_t>& iterations) {
    disk_ = std::make_shared<PowerLossFileSystem>();
    disk_->create_folder("run");
    for (const int64_t iteration : iterations) {
      const std::string folder = "run/" + iteration_folder_name(iteration);
      disk_->create_folder(folder);
      put(*disk_, folder);
      disk_->sync_folder(folder);
    }
    write_file(*disk_, tracker_, std::to_string(iterations.back()));
    disk_->sync_folder("run");
    disk_->sync_folder("");
  }

  void save() {
    BeginOptions options;
    options.overwrite = true;
    StagedIteration staged = RunStore(disk_, "run").begin(10, options);
    put(*disk_, staged.path());
    disk_->create_folder(staged.path() + "/more");
    staged.write_file("more/new", "x");
    staged.commit();
  }

  void expect_good() const {
    try {
      open_checkpoint(disk_, "run");
      EXPECT_EQ(problem_of_tracker(read_run_folder(*disk_, "run")), "");
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    // And everything that looks whole is whole.
    for (const std::string& name : disk_->list("run")) {
      if (!iteration_of(name)) continue;
      for (const auto& [file, content] : source()) {
        const std::string path = "run/" + name + "/" + file;
        ASSERT_EQ(disk_->status(path).kind, PathKind::file) << path;
        EXPECT_TRUE(read_file(*disk_, path, 1 << 20) == content) << path;
      }
    }
  }

  // What a disk may keep: nothing unsynced, all names without their content, all, and samples.
  static std::vector<PowerLossFileSystem::Choose> choices() {
    std::vector<PowerLossFileSystem::Choose> all{
        [](uint64_t, bool) { return 0; },
        [](uint64_t count, bool folder) { return folder ? count - 1 : 0; },
        [](uint64_t count, bool) { return count - 1; }};
    for (uint32_t seed = 0; seed < 6; ++seed) {
      auto random = std::make_shared<std::mt19937>(seed);
      all.emplace_back([random](uint64_t count, bool) { return (*random)() % count; });
    }
    return all;
  }

  void lose_power_everywhere(const std::function<void()>& prepare,
                             const std::function<void()>& operation,
                             const std::function<void()>& check_done) {
    bool through = false;
    for (uint64_t n = 1; !through && !HasFailure(); ++n) {
      const auto all = choices();
      for (size_t i = 0; i < all.size() && !HasFailure(); ++i) {
        SCOPED_TRACE(testing::Message() << "operation " << n << ", choice " << i);
        prepare();
        disk_->lose_power_at(n);
        try {
          operation();
        } catch (const Error&) {
          EXPECT_TRUE(disk_->lost_power());
        }
        through = !disk_->lost_power();
        disk_->crash(all[i]);
        expect_good();
        if (!through) operation();
        check_done();
      }
      operations_ = n;
    }
  }

  std::shared_ptr<PowerLossFileSystem> disk_;
  const std::string tracker_ = "run/" + std::string(kTrackerName);
  uint64_t operations_ = 0;
};

TEST_F(PowerLoss, Save) {
  lose_power_everywhere([this] { make_run({5}); }, [this] { save(); },
                        [this] {
                          expect_good();
                          EXPECT_EQ(read_file(*disk_, tracker_, 10), "10");
                          EXPECT_EQ(disk_->status("run/iter_0000010/more/new").bytes, 1u);
                        });
  EXPECT_GT(operations_, 25u);
}

TEST_F(PowerLoss, Replacement) {
  lose_power_everywhere(
      [this] {
        make_run({5, 10});
      },
      [this] { save(); },
      [this] {
        expect_good();
        EXPECT_EQ(disk_->status("run/iter_0000010/more/new").bytes, 1u);
      });
  EXPECT_GT(operations_, 25u);
}

TEST_F(PowerLoss, Prune) {
  lose_power_everywhere(
      [this] {
        make_run({1, 2, 3, 4, 5});
      },
      [this] {
        prune(disk_, "run", {1, 2, false}, {});
      },
      [this] {
        expect_good();
        std::vector<int64_t> left;
        for (const std::string& name : disk_->list("run")) {
          if (const auto number = iteration_of(name)) left.push_back(*number);
        }
        EXPECT_THAT(left, ElementsAre(2, 4, 5));
      });
  EXPECT_GT(operations_, 15u);
}

}  // namespace
}  // namespace ferry::test
