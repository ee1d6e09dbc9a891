// The asynchronous saver: what it takes a snapshot of, how many it holds, whom it tells of errors,
// how it ends.
#include "ckpt/memory/async_saver.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "ckpt/io/fault_file_system.h"
#include "ckpt/io/memory_file_system.h"
#include "tests/faults/crash.h"
#include "tests/memory/random_model.h"

namespace ferry::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Passes on to a file system in memory; creating a file waits while the gate is closed.
class GatedFileSystem final : public FileSystem {
 public:
  explicit GatedFileSystem(std::shared_ptr<const FileSystem> inner) : inner_(std::move(inner)) {}

  void close() { set(false); }
  void open_gate() { set(true); }

  PathStatus status(const std::string& path) const override { return inner_->status(path); }
  std::vector<std::string> list(const std::string& path) const override {
    return inner_->list(path);
  }
  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    return inner_->open(path);
  }
  std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const override {
    if (path.ends_with(".distcp")) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_open_; });
    }
    return inner_->create(path, bytes);
  }
  void create_folder(const std::string& path) const override { inner_->create_folder(path); }
  void rename(const std::string& from, const std::string& to) const override {
    inner_->rename(from, to);
  }
  void replace(const std::string& from, const std::string& to) const override {
    inner_->replace(from, to);
  }
  void exchange(const std::string& a, const std::string& b) const override {
    inner_->exchange(a, b);
  }
  void remove_all(const std::string& path) const override { inner_->remove_all(path); }
  void sync_folder(const std::string& path) const override { inner_->sync_folder(path); }
  std::unique_ptr<LockableFile> open_lockable(const std::string& path,
                                              LockMode strongest) const override {
    return inner_->open_lockable(path, strongest);
  }
  uint64_t copy(const ReadableFile&, uint64_t, WritableFile&, uint64_t, uint64_t) const override {
    return 0;
  }

 private:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    is_open_ = open;
    changed_.notify_all();
  }

  std::shared_ptr<const FileSystem> inner_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_open_ = true;
};

class Async : public testing::Test {
 protected:
  Async() { memory_->create_folder("runs"); }

  std::string tracker() const { return memory_->get("runs/a/latest_checkpointed_iteration.txt"); }

  const std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  const std::shared_ptr<GatedFileSystem> gated_ = std::make_shared<GatedFileSystem>(memory_);
  const RandomModel model_ = random_model(1);
};

TEST_F(Async, WhatChangesAfterwardsIsNotSaved) {
  AsyncSaver saver(gated_, "runs/a", lone_group());
  RandomModel changing = model_;
  gated_->close();
  saver.save(snapshot_of(changing, 1));
  for (auto& [name, tensor] : changing) {
    for (char& byte : tensor.bytes) byte = '!';
  }
  EXPECT_EQ(saver.status().in_flight, 1);
  EXPECT_EQ(saver.status().last_saved, std::nullopt);
  gated_->open_gate();
  saver.finish();
  EXPECT_EQ(saver.status().in_flight, 0);
  EXPECT_EQ(saver.status().last_saved, 1);
  expect_holds(memory_, "runs/a", model_);
}

TEST_F(Async, SeveralInFlightAreWrittenInTheirOrderIntoReusedBuffers) {
  AsyncSaverOptions options;
  options.most_in_flight = 3;
  AsyncSaver saver(gated_, "runs/a", lone_group(), options);
  gated_->close();
  for (int64_t i = 1; i <= 3; ++i) saver.save(snapshot_of(random_model(i), i));
  EXPECT_EQ(saver.status().in_flight, 3);
  const uint64_t bytes = saver.status().staging_bytes;
  EXPECT_THAT(memory_->list("runs"), Each(HasSubstr(".ferry-")));
  gated_->open_gate();
  for (int64_t i = 4; i <= 12; ++i) saver.save(snapshot_of(random_model(i), i));
  saver.finish();
  EXPECT_EQ(saver.status().staging_bytes, bytes);
  for (int64_t i = 1; i <= 12; ++i) {
    expect_holds(memory_, fmt::format("runs/a/iter_{:07}", i), random_model(i));
  }
  EXPECT_EQ(tracker(), "12");
}

TEST_F(Async, OneMoreThanMayBeInFlightWaits) {
  AsyncSaver saver(gated_, "runs/a", lone_group());
  gated_->close();
  saver.save(snapshot_of(model_, 1));
  std::atomic<bool> returned{false};
  std::jthread other([&] {
    saver.save(snapshot_of(model_, 2));
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(returned);
  gated_->open_gate();
  other.join();
  EXPECT_TRUE(returned);
  saver.finish();
  EXPECT_EQ(tracker(), "2");
}

TEST_F(Async, StagingMemoryIsBounded) {
  const uint64_t one = 3 << 20;  // a snapshot has some 2.1 MB
  AsyncSaverOptions options;
  options.most_in_flight = 4;
  options.staging_bytes = one;
  AsyncSaver saver(gated_, "runs/a", lone_group(), options);
  for (int64_t i = 1; i <= 5; ++i) {
    saver.save(snapshot_of(model_, i));
    EXPECT_LE(saver.status().staging_bytes, one);
  }
  const RandomTensor large = random_tensor(DType::u8, {one + 1}, 1);
  Snapshot snapshot;
  snapshot.iteration = 6;
  snapshot.tensors.push_back(large.region("large"));
  try {
    saver.save(snapshot);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::exhausted);
    EXPECT_THAT(error.what(), HasSubstr("does not fit in 3145728 bytes of staging memory"));
  }
  saver.finish();  // which was told already
  EXPECT_EQ(tracker(), "5");
  // A smaller one after a larger one, and the reverse.
  Snapshot small;
  small.iteration = 7;
  const RandomTensor tensor = random_tensor(DType::u8, {1 << 20}, 1);
  small.tensors.push_back(tensor.region("small"));
  saver.save(small);
  saver.save(snapshot_of(model_, 8));
  saver.finish();
  EXPECT_LE(saver.status().staging_bytes, one);
  EXPECT_EQ(tracker(), "8");
}

TEST_F(Async, AnErrorIsToldAtTheNextCallOnceAndTheNextSaveGoesOn) {
  const auto broken = std::make_shared<FaultFileSystem>(memory_, 12, ErrorKind::exhausted, false);
  AsyncSaver saver(broken, "runs/a", lone_group());
  saver.save(snapshot_of(model_, 1));
  while (saver.status().in_flight > 0) std::this_thread::yield();
  EXPECT_EQ(memory_->status("runs/a").kind, PathKind::missing);
  try {
    saver.save(snapshot_of(model_, 2));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::exhausted);
    EXPECT_THAT(error.what(), HasSubstr("saving iteration 1: "));
  }
  saver.finish();
  EXPECT_EQ(saver.status().last_saved, 2);
  expect_holds(memory_, "runs/a", model_);
}

TEST_F(Async, FinishTellsOfAllThatFailed) {
  const auto broken = std::make_shared<FaultFileSystem>(memory_, 1, ErrorKind::io, true);
  AsyncSaverOptions options;
  options.most_in_flight = 3;
  AsyncSaver saver(broken, "runs/a", lone_group(), options);
  std::vector<std::string> told;
  const auto listen = [&](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      told.emplace_back(error.what());
    }
  };
  for (int64_t i = 1; i <= 3; ++i) listen([&] { saver.save(snapshot_of(model_, i)); });
  listen([&] { saver.finish(); });
  ASSERT_FALSE(told.empty());
  EXPECT_THAT(told[0], HasSubstr("saving iteration 1"));
  listen([&] { saver.finish(); });
  const size_t count = told.size();
  listen([&] { saver.finish(); });
  EXPECT_EQ(told.size(), count);
}

TEST_F(Async, BadOptionsAndRegionsAreRefused) {
  AsyncSaverOptions options;
  options.most_in_flight = 0;
  EXPECT_THROW(AsyncSaver(gated_, "runs/a", lone_group(), options), Error);
  AsyncSaver saver(gated_, "runs/a", lone_group());
  Snapshot wrong = snapshot_of(model_, 1);
  wrong.tensors[0].box.offset[0] = 1;
  EXPECT_THROW(saver.save(wrong), Error);
  saver.save(snapshot_of(model_, 1));
  saver.finish();
  EXPECT_EQ(tracker(), "1");
}

TEST_F(Async, ManyRanksSaveTogether) {
  const auto errors = on_ranks(4, [&](std::shared_ptr<Group> group) {
    const int rank = group->rank();
    AsyncSaverOptions options;
    options.most_in_flight = 1 + rank % 2;
    AsyncSaver saver(memory_, "runs/a", std::move(group), options);
    for (int64_t i = 1; i <= 6; ++i) {
      const RandomModel model = random_model(static_cast<uint32_t>(i));
      saver.save(part_of_model(model, i, rank, 4));
    }
    saver.finish();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  for (int64_t i = 1; i <= 6; ++i) {
    expect_holds(memory_, fmt::format("runs/a/iter_{:07}", i), random_model(i));
  }
  EXPECT_EQ(tracker(), "6");
}

// Iteration 2 cannot be saved by rank 1: nobody has it, everybody has the others.
TEST_F(Async, OneRanksErrorIsEveryRanks) {
  const auto errors = on_ranks(3, [&](std::shared_ptr<Group> group) {
    const int rank = group->rank();
    AsyncSaver saver(memory_, "runs/a", std::move(group), {});
    std::string told;
    for (int64_t i = 1; i <= 3; ++i) {
      Snapshot snapshot = part_of_model(model_, i, rank, 3);
      if (i == 2 && rank == 1) snapshot.tensors[4].data = nullptr;
      try {
        saver.save(snapshot);
      } catch (const Error& error) {
        told += error.what();
      }
    }
    try {
      saver.finish();
    } catch (const Error& error) {
      told += error.what();
    }
    fail(ErrorKind::invalid, "told: {}", told);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("no memory is given"), HasSubstr("tensor weight"))));
  EXPECT_THAT(memory_->list("runs/a"),
              ElementsAre("iter_0000001", "iter_0000003", "latest_checkpointed_iteration.txt"));
}

// A rank that ends too early fails what the others save; nobody waits for it.
TEST_F(Async, ARankThatEndsFailsTheSavesOfTheOthers) {
  const auto errors = on_ranks(2, [&](std::shared_ptr<Group> group) {
    const int rank = group->rank();
    AsyncSaver saver(memory_, "runs/a", std::move(group), {});
    for (int64_t i = 1; i <= (rank == 0 ? 3 : 1); ++i) {
      saver.save(part_of_model(model_, i, rank, 2));
    }
    saver.finish();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1: its saver ended before"));
  EXPECT_EQ(errors[1], "");
  EXPECT_EQ(tracker(), "1");
}

TEST_F(Async, RanksAtOtherIterationsMeetAtThoseThatTheyShare) {
  const auto errors = on_ranks(2, [&](std::shared_ptr<Group> group) {
    const int rank = group->rank();
    AsyncSaverOptions options;
    options.most_in_flight = 4;
    AsyncSaver saver(memory_, "runs/a", std::move(group), options);
    std::string told;
    for (int64_t i = 1; i <= 4; ++i) {
      if (i == 2 + rank) continue;  // rank 0 leaves 2 out, rank 1 leaves 3 out
      try {
        saver.save(part_of_model(model_, i, rank, 2));
      } catch (const Error&) {
      }
    }
    try {
      saver.finish();
    } catch (const Error&) {
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(memory_->list("runs/a"),
              ElementsAre("iter_0000001", "iter_0000004", "latest_checkpointed_iteration.txt"));
}

TEST_F(Async, AGroupThatBreaksIsAnErrorNotAHang) {
  std::vector<std::shared_ptr<Group>> groups = thread_groups(2);
  AsyncSaver saver(memory_, "runs/a", groups[0]);
  saver.save(part_of_model(model_, 1, 0, 2));
  groups[1].reset();
  try {
    saver.finish();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("another rank of the group has ended"));
  }
}

TEST_F(Async, StoppedAfterWritesWhatIsStagedGetsToDisk) {
  AsyncSaverOptions options;
  options.most_in_flight = 2;
  AsyncSaver saver(gated_, "runs/a", lone_group(), options);
  gated_->close();
  saver.save(snapshot_of(model_, 1));
  saver.save(snapshot_of(model_, 2));
  saver.stop(StopMode::after_writes);
  EXPECT_TRUE(saver.is_stopped());
  try {
    saver.save(snapshot_of(model_, 3));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cancelled);
  }
  gated_->open_gate();
  saver.finish();
  EXPECT_EQ(tracker(), "2");
}

TEST_F(Async, StoppedAtOnceWhatIsStagedIsGivenUp) {
  memory_->create_folder("runs/a");
  AsyncSaverOptions options;
  options.most_in_flight = 2;
  AsyncSaver saver(gated_, "runs/a", lone_group(), options);
  gated_->close();
  saver.save(snapshot_of(model_, 1));
  saver.save(snapshot_of(model_, 2));
  saver.stop(StopMode::at_once);
  gated_->open_gate();
  try {
    saver.finish();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cancelled);
    EXPECT_THAT(error.what(), HasSubstr("1 more saves failed"));
  }
  EXPECT_THAT(memory_->list("runs/a"), IsEmpty());
}

// A real process and a real signal: the handler is the program's, the saver's threads take none.
AsyncSaver* signalled = nullptr;
StopMode signal_mode = StopMode::after_writes;
void on_term(int) { signalled->stop(signal_mode); }

class AsyncSignal : public testing::TestWithParam<StopMode> {
 protected:
  void SetUp() override { folder_ = make_crash_folder(); }
  void TearDown() override { fs::remove_all(folder_); }

  // Saves until it is stopped; 0 when it ended as it should.
  int child(int ready) const {
    const RandomModel model = random_model(1);
    AsyncSaver saver(posix_file_system(), run(), lone_group());
    signalled = &saver;
    signal_mode = GetParam();
    ::signal(SIGTERM, on_term);
    int64_t iteration = 0;
    try {
      while (!saver.is_stopped()) {
        saver.save(snapshot_of(model, ++iteration));
        if (iteration == 3 && ::write(ready, "x", 1) != 1) return 1;
      }
      saver.finish();
    } catch (const Error& error) {
      return error.kind() == ErrorKind::cancelled ? 0 : 2;
    }
    return 0;
  }

  std::string run() const { return (folder_ / "run").string(); }
  fs::path folder_;
};

TEST_P(AsyncSignal, AnOrderlyEndOnSigterm) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child(ends[1]));
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  ::kill(pid, SIGTERM);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  expect_good_run(run());
  expect_clean(run());
  expect_holds(posix_file_system(), run(), random_model(1));
  ::close(ends[0]);
  ::close(ends[1]);
}

INSTANTIATE_TEST_SUITE_P(Modes, AsyncSignal,
                         testing::Values(StopMode::after_writes, StopMode::at_once));

}  // namespace
}  // namespace ferry::test
