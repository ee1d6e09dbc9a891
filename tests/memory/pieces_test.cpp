// Asynchronous saves of more than there is staging memory for: the files are those of a save that
// has all, and the caller's memory is free to change when, and only when, nothing of it is read any
// more.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "tests/io/fault_file_system.h"
#include "tests/memory/async_support.h"

namespace ferry::test {
namespace {

using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

class Pieces : public Async {
 protected:
  static AsyncSaverOptions bounded(uint64_t bytes, int threads = 2) {
    AsyncSaverOptions options;
    options.staging_bytes = bytes;
    options.save.engine.threads = threads;
    return options;
  }

  // Content by path.
  std::map<std::string, std::string> files_below(const std::string& folder) const {
    std::map<std::string, std::string> files;
    for (const std::string& name : memory_->list(folder)) {
      const std::string path = folder + "/" + name;
      if (memory_->status(path).kind == PathKind::folder) {
        files.merge(files_below(path));
      } else {
        files.emplace(path, memory_->get(path));
      }
    }
    return files;
  }

  std::map<std::string, std::string> files_of_a_whole_save(int ranks) {
    memory_->remove_all("runs/a");
    const auto errors = on_ranks(ranks, [&](std::shared_ptr<Group> group) {
      ferry::save(memory_, "runs/a", part_of_model(model_, 1, group->rank(), ranks), *group);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
    auto files = files_below("runs/a");
    memory_->remove_all("runs/a");
    return files;
  }

  static void spoil(RandomModel& model) {
    for (auto& [name, tensor] : model) tensor.bytes.assign(tensor.bytes.size(), '!');
  }
};

// From a bound that all but fits to a ring of one piece.
TEST_F(Pieces, TheFilesAreThoseOfASaveThatHasMemoryForAll) {
  for (const int ranks : {1, 3}) {
    const auto expected = files_of_a_whole_save(ranks);
    for (const uint64_t bound : {690'000, 300'000, 70'000, 5'000, 64, 1}) {
      SCOPED_TRACE(fmt::format("{} ranks, {} bytes", ranks, bound));
      const auto errors = on_ranks(ranks, [&](std::shared_ptr<Group> group) {
        AsyncSaver saver(memory_, "runs/a", group, bounded(bound));
        RandomModel changing = model_;
        saver.save(part_of_model(changing, 1, group->rank(), ranks)).wait();
        spoil(changing);
        saver.finish();
        EXPECT_EQ(saver.status().in_pieces, 1);
        EXPECT_LE(saver.status().staging_bytes, bound);
      });
      EXPECT_THAT(errors, Each(IsEmpty()));
      EXPECT_TRUE(files_below("runs/a") == expected);
      memory_->remove_all("runs/a");
    }
  }
}

TEST_F(Pieces, RanksMayHaveMemoryOfTheirOwn) {
  const auto expected = files_of_a_whole_save(2);
  const auto errors = on_ranks(2, [&](std::shared_ptr<Group> group) {
    const bool is_short = group->rank() == 1;
    AsyncSaver saver(memory_, "runs/a", group, bounded(is_short ? 100'000 : UINT64_MAX));
    saver.save(part_of_model(model_, 1, group->rank(), 2)).wait();
    saver.finish();
    EXPECT_EQ(saver.status().in_pieces, is_short ? 1 : 0);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_TRUE(files_below("runs/a") == expected);
}

// As a device does that fails once.
class FailingStager final : public Stager {
 public:
  StagingMemory allocate(uint64_t bytes) override {
    if (failures-- > 0) fail(ErrorKind::io, "the device is lost");
    return inner_->allocate(bytes);
  }
  void copy(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment) override {
    inner_->copy(copies, moment);
  }

  std::atomic<int> failures{1};

 private:
  const std::shared_ptr<Stager> inner_ = host_stager(2);
};

TEST_F(Pieces, AStagerThatFailsOtherwiseHoldsNothingUp) {
  AsyncSaverOptions options = bounded(UINT64_MAX);
  options.stager = std::make_shared<FailingStager>();
  AsyncSaver saver(memory_, "runs/a", lone_group(), options);
  AsyncSaver::Ticket first = saver.save(snapshot_of(model_, 1));
  try {
    first.wait();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the device is lost"));
  }
  saver.save(snapshot_of(model_, 2)).wait();
  saver.finish();
  EXPECT_EQ(saver.status().last_saved, 2);
  EXPECT_EQ(saver.status().in_pieces, 0);
}

TEST_F(Pieces, TheTicketWaitsUntilTheLastOneIsCopied) {
  AsyncSaver saver(gated_, "runs/a", lone_group(), bounded(100'000));
  gated_->close();
  RandomModel changing = model_;
  AsyncSaver::Ticket ticket = saver.save(snapshot_of(changing, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(ticket.is_ready());  // nothing can be written, so that most of it was never copied
  gated_->open_gate();
  ticket.wait();
  spoil(changing);
  saver.finish();
  expect_holds(memory_, "runs/a", model_);
}

// Lets so many bytes of tensors be written, and keeps the others waiting.
class SlowFileSystem final : public ForwardingFileSystem {
 public:
  SlowFileSystem(std::shared_ptr<const FileSystem> inner, uint64_t bytes)
      : ForwardingFileSystem(std::move(inner)), left(bytes) {}

  std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const override {
    auto file = inner().create(path, bytes);
    if (!path.ends_with(".distcp")) return file;
    return std::make_unique<File>(std::move(file), left);
  }

  mutable std::atomic<int64_t> left;

 private:
  class File final : public WritableFile {
   public:
    File(std::unique_ptr<WritableFile> inner, std::atomic<int64_t>& left)
        : inner_(std::move(inner)), left_(left) {}
    const std::string& path() const noexcept override { return inner_->path(); }
    void write(uint64_t offset, std::span<const std::byte> from) override {
      while (left_ < static_cast<int64_t>(from.size())) std::this_thread::yield();
      left_ -= static_cast<int64_t>(from.size());
      inner_->write(offset, from);
    }
    void read(uint64_t offset, std::span<std::byte> into) const override {
      inner_->read(offset, into);
    }
    void sync() override { inner_->sync(); }

   private:
    std::unique_ptr<WritableFile> inner_;
    std::atomic<int64_t>& left_;
  };
};

// Half of the snapshot has room: the other half is written first, and then the memory may change.
TEST_F(Pieces, WhatWasCopiedAtOnceIsWrittenLast) {
  const RandomModel two = {{"a", random_tensor(DType::u8, {1 << 20}, 1)},
                           {"b", random_tensor(DType::u8, {1 << 20}, 2)}};
  RandomModel changing = two;
  const auto slow = std::make_shared<SlowFileSystem>(memory_, (1 << 20) + (100 << 10));
  AsyncSaver saver(slow, "runs/a", lone_group(), bounded(3 << 19, 1));
  saver.save(snapshot_of(changing, 1)).wait();
  spoil(changing);
  EXPECT_EQ(saver.status().in_flight, 1);
  slow->left = INT64_MAX / 2;
  saver.finish();
  expect_holds(memory_, "runs/a", two);
}

// Wherever a save fails, the memory is let go, nothing stands under a final name, and the next one
// is as good as ever.
TEST_F(Pieces, AFailureEndsTheSaveAlone) {
  for (uint64_t n = 1;; ++n) {
    SCOPED_TRACE(fmt::format("operation {}", n));
    memory_->remove_all("runs/a");
    const auto broken = std::make_shared<FaultFileSystem>(memory_, n, ErrorKind::io);
    AsyncSaver saver(broken, "runs/a", lone_group(), bounded(200'000));
    std::string message;
    try {
      saver.save(snapshot_of(model_, 1)).wait();
      saver.finish();
    } catch (const Error& error) {
      message = error.what();
    }
    if (message.empty()) {
      EXPECT_LT(broken->operations(), n);
      EXPECT_GT(n, 10u);
      break;
    }
    EXPECT_THAT(message, HasSubstr("saving iteration 1: "));
    if (memory_->status("runs/a").kind == PathKind::folder) {
      for (const std::string& name : memory_->list("runs/a")) {
        if (name.starts_with(".ferry-")) continue;
        EXPECT_THAT(message, ContainsRegex("is (written and complete|complete and in place)"))
            << name;
      }
    }
    saver.save(snapshot_of(model_, 2)).wait();
    saver.finish();
    expect_holds(memory_, "runs/a/iter_0000002", model_);
  }
}

// Whose memory is short, and whose copies may fail.
class PoorStager final : public Stager {
 public:
  StagingMemory allocate(uint64_t bytes) override {
    if (bytes <= most) return inner_->allocate(bytes);
    ++refused;
    if (throws_error) fail(ErrorKind::exhausted, "no memory to stage {} bytes", bytes);
    throw std::bad_alloc();
  }
  void copy(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment) override {
    if (--copies_left == 0) fail(ErrorKind::io, "the device has failed");
    inner_->copy(copies, moment);
  }

  uint64_t most = 0;
  bool throws_error = false;
  std::atomic<int> refused{0}, copies_left{-1};

 private:
  const std::shared_ptr<Stager> inner_ = host_stager(2);
};

TEST_F(Pieces, WhereMemoryForAllCannotBeHadThereIsLess) {
  for (const bool throws_error : {false, true}) {
    const auto stager = std::make_shared<PoorStager>();
    stager->most = 300'000;
    stager->throws_error = throws_error;
    AsyncSaverOptions options;
    options.stager = stager;
    memory_->remove_all("runs/a");
    AsyncSaver saver(memory_, "runs/a", lone_group(), options);
    for (int64_t i = 1; i <= 3; ++i) {
      RandomModel changing = random_model(static_cast<uint32_t>(i));
      saver.save(snapshot_of(changing, i)).wait();
      spoil(changing);
    }
    saver.finish();
    for (int64_t i = 1; i <= 3; ++i) {
      expect_holds(memory_, fmt::format("runs/a/iter_{:07}", i),
                   random_model(static_cast<uint32_t>(i)));
    }
    EXPECT_EQ(saver.status().in_pieces, 3);
    EXPECT_EQ(stager->refused, 3);  // of 2.1 MB, half and a quarter; from then on it is known
    EXPECT_LE(saver.status().staging_bytes, 300'000u);
  }
}

TEST_F(Pieces, WithoutAnyMemoryASaveIsRefused) {
  const auto stager = std::make_shared<PoorStager>();
  AsyncSaverOptions options;
  options.stager = stager;
  AsyncSaver saver(memory_, "runs/a", lone_group(), options);
  const auto refusal = [&](AsyncSaver& by) -> std::string {
    try {
      by.save(snapshot_of(model_, 1)).wait();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::exhausted);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(saver), HasSubstr("no memory to stage any of a snapshot of 2"));
  stager->most = UINT64_MAX;
  EXPECT_EQ(refusal(saver), "");
  saver.finish();
  AsyncSaver none(memory_, "runs/b", lone_group(), bounded(0));
  EXPECT_THAT(refusal(none), HasSubstr("no staging memory is allowed"));
}

TEST_F(Pieces, ACopyThatFailsEndsTheSaveAlone) {
  const auto stager = std::make_shared<PoorStager>();
  stager->most = 300'000;
  AsyncSaverOptions options = bounded(300'000);
  options.stager = stager;
  AsyncSaver saver(memory_, "runs/a", lone_group(), options);
  for (const int copy : {1, 2, 10}) {
    stager->copies_left = copy;
    EXPECT_THROW(
        {
          saver.save(snapshot_of(model_, copy)).wait();
          saver.finish();
        },
        Error);
  }
  EXPECT_EQ(memory_->status("runs/a").kind, PathKind::missing);
  saver.save(snapshot_of(model_, 11)).wait();
  saver.finish();
  expect_holds(memory_, "runs/a", model_);
}

TEST_F(Pieces, AStoppedSaverLetsTheMemoryGo) {
  AsyncSaver saver(gated_, "runs/a", lone_group(), bounded(100'000));
  gated_->close();
  AsyncSaver::Ticket ticket = saver.save(snapshot_of(model_, 1));
  saver.stop(StopMode::at_once);
  gated_->open_gate();
  EXPECT_THROW(
      {
        ticket.wait();
        saver.finish();
      },
      Error);
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

// One that is copied whole is written while the next one waits for room, and that is in pieces.
TEST_F(Pieces, TakeTurnsWithSnapshotsThatFit) {
  AsyncSaverOptions options = bounded(600'000);
  options.most_in_flight = 2;
  AsyncSaver saver(memory_, "runs/a", lone_group(), options);
  for (int64_t i = 1; i <= 6; ++i) {
    RandomModel changing = random_model(static_cast<uint32_t>(i));
    if (i % 2 == 1) changing.erase("weight");
    saver.save(snapshot_of(changing, i)).wait();
    spoil(changing);
  }
  saver.finish();
  EXPECT_EQ(saver.status().in_pieces, 3);
  for (int64_t i = 1; i <= 6; ++i) {
    RandomModel model = random_model(static_cast<uint32_t>(i));
    if (i % 2 == 1) model.erase("weight");
    expect_holds(memory_, fmt::format("runs/a/iter_{:07}", i), model);
  }
}

}  // namespace
}  // namespace ferry::test
