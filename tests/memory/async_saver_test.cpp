// The asynchronous saver: what it takes a snapshot of, how many it holds, how it reports errors,
// how it ends.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/io/fault_file_system.h"
#include "tests/memory/async_support.h"

namespace ferry::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(Async, WhatChangesAfterwardsIsNotSaved) {
  AsyncSaver saver(gated_, "runs/a", lone_group());
  RandomModel changing = model_;
  gated_->close();
  saver.save(snapshot_of(changing, 1)).wait();
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

TEST_F(Async, WhoMustNotWaitForLongAsksWithinATime) {
  using std::chrono::milliseconds;
  AsyncSaver saver(gated_, "runs/a", lone_group());
  gated_->close();
  AsyncSaver::Ticket first = saver.save(snapshot_of(model_, 1));
  EXPECT_TRUE(first.is_ready_within(std::chrono::seconds(60)));
  AsyncSaver::Ticket second = saver.save(snapshot_of(model_, 2));  // waits for the only buffer
  EXPECT_FALSE(second.is_ready_within(milliseconds(10)));
  EXPECT_FALSE(saver.finish_within(milliseconds(10)));
  gated_->open_gate();
  EXPECT_TRUE(saver.finish_within(std::chrono::seconds(60)));
  EXPECT_TRUE(second.is_ready_within(milliseconds(0)));
  EXPECT_EQ(tracker(), "2");
}

TEST_F(Async, OldIterationsGoOnceANewOneIsThere) {
  AsyncSaverOptions options;
  options.save.keep.keep_last = 2;
  options.save.keep.keep_every = 3;
  AsyncSaver saver(gated_, "runs/a", lone_group(), options);
  for (int64_t i = 3; i <= 7; ++i) saver.save(snapshot_of(model_, i)).wait();
  saver.finish();
  EXPECT_THAT(memory_->list("runs/a"),
              testing::IsSupersetOf({"iter_0000003", "iter_0000006", "iter_0000007"}));
  EXPECT_THAT(memory_->list("runs/a"), Each(testing::Not(HasSubstr("iter_0000005"))));
  EXPECT_THAT(saver.status().notes, IsEmpty());
  options.save.keep.keep_last = 0;  // a save that has succeeded is not a failure
  AsyncSaver careless(gated_, "runs/a", lone_group(), options);
  careless.save(snapshot_of(model_, 8)).wait();
  careless.finish();
  EXPECT_THAT(careless.status().notes, ElementsAre(HasSubstr("old iterations of runs/a stay")));
}

TEST_F(Async, SeveralInFlightAreWrittenInTheirOrderIntoReusedBuffers) {
  AsyncSaverOptions options;
  options.most_in_flight = 3;
  AsyncSaver saver(gated_, "runs/a", lone_group(), options);
  gated_->close();
  for (int64_t i = 1; i <= 3; ++i) saver.save(snapshot_of(random_model(i), i)).wait();
  EXPECT_EQ(saver.status().in_flight, 3);
  const uint64_t bytes = saver.status().staging_bytes;
  EXPECT_THAT(memory_->list("runs"), Each(HasSubstr(".ferry-")));
  gated_->open_gate();
  for (int64_t i = 4; i <= 12; ++i) saver.save(snapshot_of(random_model(i), i)).wait();
  saver.finish();
  EXPECT_EQ(saver.status().staging_bytes, bytes);
  for (int64_t i = 1; i <= 12; ++i) {
    expect_holds(memory_, fmt::format("runs/a/iter_{:07}", i), random_model(i));
  }
  EXPECT_EQ(tracker(), "12");
}

// Copies only while its gate is open.
class GatedStager final : public Stager {
 public:
  StagingMemory allocate(uint64_t bytes) override { return inner_->allocate(bytes); }
  std::shared_ptr<void> now() override { return std::make_shared<int>(++moments_); }
  void copy(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment) override {
    while (!open) std::this_thread::yield();
    last_moment = *std::static_pointer_cast<int>(moment);
    inner_->copy(copies, moment);
  }

  std::atomic<bool> open{false};
  std::atomic<int> last_moment{0};

 private:
  int moments_ = 0;
  const std::shared_ptr<Stager> inner_ = host_stager(2);
};

TEST_F(Async, ATicketIsReadyOnceTheMemoryIsCopied) {
  const auto stager = std::make_shared<GatedStager>();
  AsyncSaverOptions options;
  options.stager = stager;
  AsyncSaver saver(gated_, "runs/a", lone_group(), options);
  gated_->close();
  RandomModel changing = model_;
  AsyncSaver::Ticket ticket = saver.save(snapshot_of(changing, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(ticket.is_ready());
  stager->open = true;
  ticket.wait();  // nothing is written yet
  EXPECT_TRUE(ticket.is_ready());
  EXPECT_EQ(saver.status().in_flight, 1);
  for (auto& [name, tensor] : changing) tensor.bytes.assign(tensor.bytes.size(), '!');
  gated_->open_gate();
  saver.finish();
  expect_holds(memory_, "runs/a", model_);
  EXPECT_EQ(stager->last_moment, 1);
  saver.save(snapshot_of(model_, 2)).wait();
  EXPECT_EQ(stager->last_moment, 2);
}

// Waits until it learns by when it has to be done.
class PatientStager final : public Stager {
 public:
  StagingMemory allocate(uint64_t bytes) override { return inner_->allocate(bytes); }
  void copy(std::span<const StagingCopy>, const std::shared_ptr<void>&) override { FAIL(); }
  void copy_overlapped(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment,
                       const std::function<std::shared_ptr<void>()>& due,
                       const std::function<void()>& release) override {
    while (!due()) std::this_thread::yield();
    moment_due = *std::static_pointer_cast<int>(due());
    inner_->copy(copies, moment);
    release();
    while (!goes_on) std::this_thread::yield();
  }

  std::atomic<int> moment_due{0};
  std::atomic<bool> goes_on{false};

 private:
  const std::shared_ptr<Stager> inner_ = host_stager(2);
};

TEST_F(Async, AStagerLearnsWhenTheMemoryIsToChangeAndGoesOnAfterIt) {
  const auto stager = std::make_shared<PatientStager>();
  AsyncSaverOptions options;
  options.stager = stager;
  AsyncSaver saver(memory_, "runs/a", lone_group(), options);
  saver.prepare(snapshot_of(model_, 1).tensors);
  RandomModel changing = model_;
  AsyncSaver::Ticket ticket = saver.save(snapshot_of(changing, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(ticket.is_ready());
  ticket.set_due(std::make_shared<int>(17));
  ticket.wait();
  EXPECT_EQ(stager->moment_due, 17);
  EXPECT_GT(saver.status().staging_bytes, 0u);
  for (auto& [name, tensor] : changing) tensor.bytes.assign(tensor.bytes.size(), '!');
  stager->goes_on = true;
  saver.finish();
  expect_holds(memory_, "runs/a", model_);
}

TEST_F(Async, ADroppedTicketWaitsAndOneMayOutliveItsSaver) {
  AsyncSaver::Ticket ticket;
  ticket.wait();  // for nothing
  const auto broken = std::make_shared<FaultFileSystem>(memory_, 12, ErrorKind::exhausted, false);
  {
    AsyncSaver saver(broken, "runs/a", lone_group());
    RandomModel changing = model_;
    { const AsyncSaver::Ticket dropped = saver.save(snapshot_of(changing, 1)); }
    for (auto& [name, tensor] : changing) tensor.bytes.assign(tensor.bytes.size(), '!');
    while (saver.status().in_flight > 0) std::this_thread::yield();
    ticket = saver.save(snapshot_of(model_, 2));
  }
  EXPECT_TRUE(ticket.is_ready());
  EXPECT_THROW(ticket.wait(), Error);  // of the first one
  ticket.wait();
  expect_holds(memory_, "runs/a", model_);
}

TEST_F(Async, OneMoreThanMayBeInFlightWaits) {
  AsyncSaver saver(gated_, "runs/a", lone_group());
  gated_->close();
  saver.save(snapshot_of(model_, 1)).wait();
  std::atomic<bool> returned{false};
  std::jthread other([&] {
    saver.save(snapshot_of(model_, 2)).wait();
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
    saver.save(snapshot_of(model_, i)).wait();
    EXPECT_LE(saver.status().staging_bytes, one);
  }
  const RandomTensor large = random_tensor(DType::u8, {one + 1}, 1);
  Snapshot snapshot;
  snapshot.iteration = 6;
  snapshot.tensors.push_back(large.region("large"));
  saver.save(snapshot).wait();  // in pieces
  EXPECT_LE(saver.status().staging_bytes, one);
  EXPECT_EQ(saver.status().in_pieces, 1);
  saver.finish();
  expect_holds(memory_, "runs/a", {{"large", large}});
  EXPECT_EQ(tracker(), "6");
  // A smaller one after a larger one, and the reverse.
  Snapshot small;
  small.iteration = 7;
  const RandomTensor tensor = random_tensor(DType::u8, {1 << 20}, 1);
  small.tensors.push_back(tensor.region("small"));
  saver.save(small).wait();
  saver.save(snapshot_of(model_, 8)).wait();
  saver.finish();
  EXPECT_LE(saver.status().staging_bytes, one);
  EXPECT_EQ(tracker(), "8");
}

TEST_F(Async, AnErrorIsReportedOnceAtTheNextCallAndTheNextSaveGoesOn) {
  const auto broken = std::make_shared<FaultFileSystem>(memory_, 12, ErrorKind::exhausted, false);
  AsyncSaver saver(broken, "runs/a", lone_group());
  std::vector<std::string> errors;
  const auto save_and_listen = [&](int64_t iteration) {
    try {
      saver.save(snapshot_of(model_, iteration)).wait();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::exhausted);
      errors.emplace_back(error.what());
    }
  };
  save_and_listen(1);  // throws at once if the save has already failed
  while (saver.status().in_flight > 0) std::this_thread::yield();
  EXPECT_EQ(memory_->status("runs/a").kind, PathKind::missing);
  save_and_listen(2);
  EXPECT_THAT(errors, ElementsAre(HasSubstr("saving iteration 1: ")));
  saver.finish();
  EXPECT_EQ(saver.status().last_saved, 2);
  expect_holds(memory_, "runs/a", model_);
}

TEST_F(Async, FinishReportsAllThatFailed) {
  const auto broken = std::make_shared<FaultFileSystem>(memory_, 1, ErrorKind::io, true);
  AsyncSaverOptions options;
  options.most_in_flight = 3;
  AsyncSaver saver(broken, "runs/a", lone_group(), options);
  std::vector<std::string> errors;
  const auto listen = [&](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      errors.emplace_back(error.what());
    }
  };
  for (int64_t i = 1; i <= 3; ++i) listen([&] { saver.save(snapshot_of(model_, i)).wait(); });
  listen([&] { saver.finish(); });
  ASSERT_FALSE(errors.empty());
  EXPECT_THAT(errors[0], HasSubstr("saving iteration 1"));
  listen([&] { saver.finish(); });
  const size_t count = errors.size();
  listen([&] { saver.finish(); });
  EXPECT_EQ(errors.size(), count);
}

TEST_F(Async, BadOptionsAndRegionsAreRefused) {
  AsyncSaverOptions options;
  options.most_in_flight = 0;
  EXPECT_THROW(AsyncSaver(gated_, "runs/a", lone_group(), options), Error);
  AsyncSaver saver(gated_, "runs/a", lone_group());
  Snapshot wrong = snapshot_of(model_, 1);
  wrong.tensors[0].shard.box.offset[0] = 1;
  EXPECT_THROW(saver.save(wrong).wait(), Error);
  saver.save(snapshot_of(model_, 1)).wait();
  saver.finish();
  EXPECT_EQ(tracker(), "1");
}

TEST_F(Async, StoppedAfterWritesWhatIsStagedGetsToDisk) {
  AsyncSaverOptions options;
  options.most_in_flight = 2;
  AsyncSaver saver(gated_, "runs/a", lone_group(), options);
  gated_->close();
  saver.save(snapshot_of(model_, 1)).wait();
  saver.save(snapshot_of(model_, 2)).wait();
  saver.stop(StopMode::after_writes);
  EXPECT_TRUE(saver.is_stopped());
  try {
    saver.save(snapshot_of(model_, 3)).wait();
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
  saver.save(snapshot_of(model_, 1)).wait();
  saver.save(snapshot_of(model_, 2)).wait();
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

}  // namespace
}  // namespace ferry::test
