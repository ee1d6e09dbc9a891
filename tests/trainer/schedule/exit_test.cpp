#include "trainer/schedule/exit.h"

#include <gtest/gtest.h>

#include <csignal>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

TrainArguments saving() {
  TrainArguments a = default_arguments();
  a.save = "runs";
  a.save_interval = 10;
  a.log_interval = 1;
  return a;
}

ExitDecision decide(const TrainArguments& a, int64_t iteration, const ExitSigns& signs = {}) {
  return decide_exit(a, iteration, signs, 12.5);
}

TEST(ExitDecision, SavesAtIntervals) {
  TrainArguments a = saving();
  a.non_persistent_save_interval = 4;
  EXPECT_EQ(decide(a, 9).save, SaveKind::none);
  EXPECT_EQ(decide(a, 10).save, SaveKind::persistent);
  EXPECT_EQ(decide(a, 12).save, SaveKind::non_persistent);
  EXPECT_EQ(decide(a, 20).save, SaveKind::persistent);
  EXPECT_FALSE(decide(a, 10).exit);
  a.save.clear();
  EXPECT_EQ(decide(a, 10).save, SaveKind::none);
}

TEST(ExitDecision, TheSignalComesFirst) {
  TrainArguments a = saving();
  a.exit_interval = 7;
  const ExitSigns all = {true, true, true, true};
  EXPECT_EQ(decide(a, 7, all).why, "exiting program at iteration 7");  // no handler
  a.exit_signal_handler = true;
  a.exit_signal = "SIGUSR2";
  a.exit_duration_in_mins = 12;
  EXPECT_EQ(decide(a, 7, all), (ExitDecision{SaveKind::persistent, true, false, true,
                                             "exiting program after receiving SIGUSR2."}));
  EXPECT_EQ(decide(a, 7, {false, true, true, true}).why, "exiting program after 12.5 minutes");
  a.save.clear();
  EXPECT_EQ(decide(a, 7, all).save, SaveKind::none);
}

TEST(ExitDecision, LeavesAtIterationsWithoutSavingTwice) {
  TrainArguments a = saving();
  a.exit_interval = 5;
  EXPECT_EQ(decide(a, 5), (ExitDecision{SaveKind::persistent, true, false, false,
                                        "exiting program at iteration 5"}));
  EXPECT_EQ(decide(a, 10).save, SaveKind::persistent);
  a.non_persistent_save_interval = 3;
  EXPECT_EQ(decide(a, 15).save, SaveKind::non_persistent);  // as Megatron-LM: saved is saved
  a.exit_interval.reset();
  a.phase_transition_iterations = "100, 30,200";
  EXPECT_TRUE(decide(a, 30).exit);
  EXPECT_FALSE(decide(a, 31).exit);
  for (const char* text : {"10,x", "10,-5"}) {
    a.phase_transition_iterations = text;
    EXPECT_THROW(decide(a, 10), Error);
  }
}

TEST(ExitDecision, ObeysTriggersInIterationsThatAreLogged) {
  TrainArguments a = saving();
  a.trigger_path = "triggers";
  a.log_interval = 2;
  const ExitSigns both = {false, false, true, true};
  EXPECT_EQ(decide(a, 3, both), ExitDecision());
  EXPECT_EQ(decide(a, 4, both).save, SaveKind::persistent);
  EXPECT_TRUE(decide(a, 4, both).exit);
  EXPECT_TRUE(decide(a, 4, both).remove_save_trigger);
  const auto only_exit = decide(a, 4, {false, false, false, true});
  EXPECT_EQ(only_exit.save, SaveKind::none);  // stops without a save
  EXPECT_TRUE(only_exit.exit);
  EXPECT_TRUE(only_exit.obeys_exit_trigger);
  EXPECT_FALSE(decide(a, 4, {false, false, true, false}).obeys_exit_trigger);
  a.save.clear();
  EXPECT_FALSE(decide(a, 4, {false, false, true, false}).remove_save_trigger);
}

TEST(ExitSigns, AreThoseOfAnyRank) {
  const ExitSigns some = or_of({true, false, false, false}, {false, false, true, false});
  EXPECT_TRUE(some.signalled && some.save_trigger);
  EXPECT_FALSE(some.out_of_time || some.exit_trigger);
}

volatile std::sig_atomic_t heard = 0;

TEST(SignalWatch, RemembersASignalAndGivesItBack) {
  const auto before = std::signal(SIGUSR1, [](int) { heard = heard + 1; });
  {
    const SignalWatch watch(SIGUSR1);
    EXPECT_FALSE(watch.came());
    EXPECT_THROW(SignalWatch{SIGUSR1}, Error);
    std::raise(SIGUSR1);
    EXPECT_TRUE(watch.came());
    EXPECT_EQ(heard, 0);
  }
  std::raise(SIGUSR1);
  EXPECT_EQ(heard, 1);
  EXPECT_FALSE(SignalWatch(SIGUSR1).came());
  EXPECT_THROW(SignalWatch{0}, Error);
  EXPECT_THROW(SignalWatch{SIGKILL}, Error);
  std::signal(SIGUSR1, before);
}

TEST(ExitWatch, ChecksTheClockAndTheFiles) {
  MemoryFileSystem files;
  TrainArguments a = saving();
  a.trigger_path = "/t";
  a.log_interval = 2;
  a.exit_duration_in_mins = 1;
  a.exit_signal_handler = true;
  a.exit_signal = "SIGUSR1";
  const auto start = ExitWatch::Clock::now();
  const ExitWatch watch(a, files, start);
  EXPECT_FALSE(watch.observe(2, start + std::chrono::seconds(60)).out_of_time);
  EXPECT_TRUE(watch.observe(2, start + std::chrono::seconds(61)).out_of_time);
  EXPECT_DOUBLE_EQ(watch.minutes(start + std::chrono::seconds(90)), 1.5);
  files.put("/t/save", "");
  files.put("/t/exit", "");
  EXPECT_FALSE(watch.observe(3, start).save_trigger);
  EXPECT_TRUE(watch.observe(4, start).save_trigger);
  EXPECT_TRUE(watch.observe(4, start).exit_trigger);
  watch.remove_save_trigger();
  EXPECT_FALSE(watch.observe(4, start).save_trigger);
  EXPECT_TRUE(watch.observe(4, start).exit_trigger);
  watch.put_exit_trigger_away();
  watch.put_exit_trigger_away();  // which is there no more
  EXPECT_FALSE(watch.observe(4, start).exit_trigger);
  EXPECT_EQ(files.status("/t/exit.obeyed").kind, PathKind::file);
  // A folder of that name is not a trigger, and what it holds stays.
  files.put("/t/save/iter_0000004/model", "weights");
  EXPECT_FALSE(watch.observe(4, start).save_trigger);
  watch.remove_save_trigger();
  EXPECT_EQ(files.get("/t/save/iter_0000004/model"), "weights");
  EXPECT_FALSE(watch.observe(4, start).signalled);
  std::raise(SIGUSR1);
  EXPECT_TRUE(watch.observe(5, start).signalled);
}

}  // namespace
}  // namespace ferry
