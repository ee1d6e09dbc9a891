// Who may write a target: the living, the dead, and those that cannot be judged.
#include "ckpt/io/staging/write_lock.h"

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <random>
#include <thread>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/leftovers.h"
#include "tests/io/hooked_file_system.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kToken = "00112233aabbccdd";
constexpr const char* kLock = "runs/.ferry-lock.a";

class WriteLockTest : public testing::Test {
 protected:
  WriteLockTest() {
    memory_->set_clock(1'000'000);
    memory_->create_folder("runs");
  }

  static LockRecord record_of(const ProcessIdentity& owner) {
    LockRecord record;
    record.owner = owner;
    record.since_seconds = 1'772'000'000;
    record.token = kToken;
    return record;
  }
  static ProcessIdentity dead() {
    ProcessIdentity owner = ProcessIdentity::current();
    owner.process = 4'194'305;  // above the kernel's limit
    return owner;
  }
  static ProcessIdentity elsewhere() { return {"node7", "another-boot", "pid:[1]", 42, 99}; }

  // A lock on runs/a as its owner left it, with a partial folder.
  void put_lock(const LockRecord& record) {
    memory_->put(kLock, record.to_text());
    memory_->put(std::string("runs/.ferry-partial.a.") + kToken + "/x", "1");
  }
  std::string refused(const WriteLockOptions& options = {}) { return refused(memory_, options); }
  std::string refused(const std::shared_ptr<const FileSystem>& files,
                      const WriteLockOptions& options = {}) {
    try {
      const WriteLock mine(files, "runs/a", options);
      ADD_FAILURE() << "got the lock";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::busy);
      return error.what();
    }
    return {};
  }

  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  std::shared_ptr<HookedFileSystem> hooked_ = std::make_shared<HookedFileSystem>(memory_);
};

TEST_F(WriteLockTest, LeavesNothing) {
  { const WriteLock mine(memory_, "runs/a"); }
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

TEST_F(WriteLockTest, TheDeadAreCleanedUp) {
  put_lock(record_of(dead()));
  { const WriteLock mine(memory_, "runs/a"); }
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

// A process of this number runs, but it is another one.
TEST_F(WriteLockTest, AReusedProcessNumberIsSeen) {
  ProcessIdentity owner = ProcessIdentity::current();
  owner.started -= 1;
  put_lock(record_of(owner));
  { const WriteLock mine(memory_, "runs/a"); }
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

TEST_F(WriteLockTest, ARebootedHostsProcessesAreDead) {
  ProcessIdentity owner = ProcessIdentity::current();
  owner.boot = "another-boot";
  put_lock(record_of(owner));
  { const WriteLock mine(memory_, "runs/a"); }
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

// Without locks (this record holds none) the process number decides.
TEST_F(WriteLockTest, TheLivingKeepTheirLock) {
  put_lock(record_of(ProcessIdentity::current()));
  EXPECT_THAT(refused(), AllOf(HasSubstr("runs/a is being written by process"),
                               HasSubstr("since 2026-02-25 06:13:20 UTC")));
  EXPECT_EQ(memory_->list("runs").size(), 2u);
}

// In another process namespace, where process ids say nothing, the kernel's lock decides.
TEST_F(WriteLockTest, TheLockShowsLifeAndDeath) {
  ProcessIdentity owner = ProcessIdentity::current();
  owner.pid_namespace = "pid:[1]";
  LockRecord record = record_of(owner);
  record.locked = true;
  put_lock(record);
  {
    const auto lock = memory_->open_lockable(kLock, LockMode::exclusive);
    ASSERT_EQ(lock->lock(LockMode::exclusive), LockState::taken);
    EXPECT_THAT(refused(), HasSubstr("is being written by"));
  }
  { const WriteLock mine(memory_, "runs/a"); }
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

TEST_F(WriteLockTest, OneOfAnotherHostIsTakenOverWhenNothingMoves) {
  put_lock(record_of(elsewhere()));
  EXPECT_THAT(refused(), AllOf(HasSubstr("process 42 on node7"), HasSubstr("after 15 min"),
                               HasSubstr("remove runs/.ferry-lock.a")));
  memory_->set_clock(1'000'000 + kTakeOverSeconds);
  {
    const WriteLock mine(memory_, "runs/a");
    ASSERT_EQ(mine.notes().size(), 1u);  // what it wrote stays, should it live
    EXPECT_THAT(mine.notes()[0], HasSubstr("process 42 on node7"));
  }
  EXPECT_EQ(memory_->list("runs").size(), 2u);
  memory_->set_clock(1'000'000 + kRemoveSeconds);
  { const WriteLock mine(memory_, "runs/a"); }
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

TEST_F(WriteLockTest, OneOfAnotherHostThatWritesIsNotTakenOver) {
  put_lock(record_of(elsewhere()));
  memory_->set_clock(1'000'000 + kTakeOverSeconds);
  memory_->put(std::string("runs/.ferry-partial.a.") + kToken + "/y", "2");
  refused();
  WriteLockOptions at_once;
  at_once.take_over = true;
  const WriteLock mine(memory_, "runs/a", at_once);
}

TEST_F(WriteLockTest, WhoLostTheLockIsReported) {
  memory_->put("runs/a/x", "old");
  const WriteLock first(memory_, "runs/a");
  memory_->put(kLock, record_of(elsewhere()).to_text());
  try {
    first.check();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::busy);
    EXPECT_THAT(error.what(), HasSubstr("taken over by process 42 on node7"));
  }
}

TEST_F(WriteLockTest, WhoLostTheLockToOneThatIsDoneIsReported) {
  const WriteLock first(memory_, "runs/a");
  const std::string token = read_lock_token(*memory_, kLock);
  memory_->rename(kLock, "runs/" + aside_name(Aside::owner, "a", token));
  try {
    first.check();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::busy);
    EXPECT_THAT(error.what(), HasSubstr("taken over by another process"));
  }
}

TEST_F(WriteLockTest, TheFormerTargetIsPutBack) {
  put_lock(record_of(dead()));
  memory_->put(std::string("runs/.ferry-old.a.") + kToken + "/x", "former");
  { const WriteLock mine(memory_, "runs/a"); }
  EXPECT_THAT(memory_->list("runs"), ElementsAre("a"));
  EXPECT_EQ(memory_->get("runs/a/x"), "former");
}

// An empty record, as a power loss leaves it, and one of something else.
TEST_F(WriteLockTest, DamagedRecordsWaitTheirTime) {
  for (const std::string content : {"", "ferry lock 1\ntoken zz\n", "\x80\x01", "ferry lock 1\n"}) {
    memory_->set_clock(1'000'000);
    memory_->put(kLock, content);
    EXPECT_THAT(refused(), HasSubstr("an unknown process"));
    memory_->set_clock(1'000'000 + kRemoveSeconds);
    { const WriteLock mine(memory_, "runs/a"); }
    EXPECT_THAT(memory_->list("runs"), IsEmpty());
  }
}

TEST_F(WriteLockTest, WaitsForTheLiving) {
  auto first = std::make_unique<WriteLock>(memory_, "runs/a");
  WriteLockOptions patient;
  patient.wait_seconds = 0.05;
  EXPECT_THAT(refused(patient), HasSubstr("is being written by"));
}

// A prune during a training holds a target for a moment: the save waits, other prunes do not.
TEST_F(WriteLockTest, WritersWaitForOneThatOnlyRemoves) {
  const WriteLockOptions to_remove{.to_remove = true};
  auto first = std::make_unique<WriteLock>(memory_, "runs/a", to_remove);
  EXPECT_THAT(refused(to_remove), HasSubstr("runs/a is being pruned or cleaned up by process"));
  auto later = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    first.reset();
  });
  const WriteLock writer(memory_, "runs/a");
  later.get();
  EXPECT_THAT(refused(to_remove), HasSubstr("runs/a is being written by process"));
}

// Two find a dead one's lock: the kernel's lock on it is for a moment that of the faster one.
TEST_F(WriteLockTest, WritersWaitForOneThatTakesADeadOnesLock) {
  LockRecord record = record_of(dead());
  record.locked = true;
  put_lock(record);
  auto faster = memory_->open_lockable(kLock, LockMode::exclusive);
  ASSERT_EQ(faster->lock(LockMode::exclusive), LockState::taken);
  EXPECT_THAT(refused({.to_remove = true}),
              HasSubstr("which has ended, and another process holds its lock"));
  auto later = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    faster.reset();
  });
  { const WriteLock writer(memory_, "runs/a"); }
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

// Without locks, a dead one's lock is given back while it is judged, and a living one takes it.
TEST_F(WriteLockTest, ALockThatIsHandedOverIsJudgedAnew) {
  memory_->put(kLock, record_of(dead()).to_text());
  LockRecord next = record_of(ProcessIdentity::current());
  next.token = "ffeeddccbbaa9988";
  bool is_judged = false;
  hooked_->has_locks = false;
  hooked_->before = [&](std::string_view call, const std::string& path) {
    if (path != kLock) return;
    EXPECT_NE(call, "rename") << "the lock of a living one is moved";
    if (call != "open_lockable" || std::exchange(is_judged, true)) return;
    memory_->put(kLock, next.to_text());
    fail(ErrorKind::not_found, "{} is not there", path);
  };
  EXPECT_THAT(refused(hooked_), HasSubstr("runs/a is being written by process"));
  EXPECT_EQ(read_lock_token(*memory_, kLock), next.token);
}

// Without locks another process mistakes the lock for a dead one's, and would put it back.
TEST_F(WriteLockTest, ALockThatWasMovedIsGivenBackToo) {
  hooked_->has_locks = false;
  auto mine = std::make_unique<WriteLock>(hooked_, "runs/a");
  memory_->rename(kLock, "runs/" + aside_name(Aside::owner, "a", kToken));
  mine.reset();
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

// Without locks two take a dead one's lock: the slower finds the place of its record taken, and
// leaves it there, as what the dead one left is known by it.
TEST_F(WriteLockTest, TheSlowerOfTwoLeavesTheDeadOnesRecord) {
  put_lock(record_of(dead()));
  LockRecord faster = record_of(ProcessIdentity::current());
  faster.token = "ffeeddccbbaa9988";
  bool is_slow = true;
  hooked_->has_locks = false;
  hooked_->before = [&](std::string_view call, const std::string& path) {
    if (call != "rename" || path != kLock || !std::exchange(is_slow, false)) return;
    memory_->rename(kLock, "runs/" + aside_name(Aside::owner, "a", kToken));
    memory_->put(kLock, faster.to_text());
  };
  EXPECT_THAT(refused(hooked_), HasSubstr("runs/a is being written by process"));
  memory_->remove_all(kLock);
  EXPECT_EQ(memory_->list("runs").size(), 2u);
  { const WriteLock mine(memory_, "runs/a"); }
  EXPECT_THAT(memory_->list("runs"), IsEmpty());
}

// Over a network a call whose answer is lost is made again: what it did fails the second time.
TEST_F(WriteLockTest, ALostAnswerDoesNotRefuseTheLockItself) {
  for (const bool has_locks : {true, false}) {
    for (const ErrorKind kind : {ErrorKind::invalid, ErrorKind::not_found}) {
      hooked_->has_locks = has_locks;
      bool is_lost = false;
      hooked_->after = [&](std::string_view call, const std::string& path) {
        if (call == "rename" && !std::exchange(is_lost, true)) fail(kind, "{}: again", path);
      };
      { const WriteLock mine(hooked_, "runs/a"); }
      EXPECT_TRUE(is_lost);
      EXPECT_THAT(memory_->list("runs"), IsEmpty());
    }
  }
}

TEST(AsideNames, HideNumbersAndComeBack) {
  for (const std::string target : {"iter_0000100", "step-100", "100%", "a.b", "llama-3.1-8b-hf",
                                   "epoch=3-step=9", "x_", "-", "%5F1"}) {
    for (const Aside kind : {Aside::lock, Aside::owner, Aside::partial, Aside::old, Aside::trash}) {
      const std::string name = aside_name(kind, target, kToken);
      const auto parsed = parse_aside(name);
      ASSERT_TRUE(parsed) << name;
      EXPECT_EQ(parsed->target_name, target);
      EXPECT_EQ(parsed->kind, kind);
      EXPECT_EQ(parsed->token, kind == Aside::lock ? "" : kToken);
      EXPECT_EQ(name.find("_0"), std::string::npos);
      EXPECT_EQ(name.find("-1"), std::string::npos);
    }
  }
  EXPECT_EQ(aside_name(Aside::partial, "iter_0000100", kToken),
            ".ferry-partial.iter%5F0000100.00112233aabbccdd");
  for (const char* other : {"iter_0000100", ".ferry-", ".ferry-lock.", ".ferry-partial.a",
                            ".ferry-partial.a.xyz", ".ferry-partial.%5.00112233aabbccdd"}) {
    EXPECT_FALSE(parse_aside(other)) << other;
  }
}

// A folder that its owner removes between two accesses.
class VanishingFolder final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  std::vector<std::string> list(const std::string& path) const override {
    if (path.find(".ferry-partial") == std::string::npos) return inner().list(path);
    inner().remove_all(path);
    fail(ErrorKind::not_found, "cannot list {}: No such file or directory", path);
  }
};

TEST_F(WriteLockTest, WhoseLeftoversGoWhileTheyAreRead) {
  put_lock(record_of(elsewhere()));
  const VanishingFolder files(memory_);
  const std::vector<Leftover> left = find_leftovers(files, "runs", "a", 1'000'600);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].unchanged_seconds, 600);
}

// What a name stands for becomes a path in the same folder: names that others made lead nowhere
// else.
TEST(AsideNames, OfOthersNeverBecomeAPathElsewhere) {
  const std::string token = std::string(".") + kToken;
  for (const std::string text : {"%2E%2E%2Fother%2Fvictim", "%2e%2e", "..", ".", "a%2Fb", "a/b",
                                 "%00", "%41", "%5f1", "iter_0000100", "%", "a%"}) {
    for (const std::string prefix : {".ferry-trash.", ".ferry-partial.", ".ferry-old."}) {
      EXPECT_FALSE(parse_aside(prefix + text + token)) << prefix + text + token;
    }
    EXPECT_FALSE(parse_aside(".ferry-lock." + text)) << text;
  }
  std::mt19937 random(1);
  constexpr std::string_view kLetters("%%%%22EF5fe0/\0.-_=a19", 21);
  size_t understood = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string text;
    for (size_t length = random() % 8; length-- > 0;) text += kLetters[random() % kLetters.size()];
    const std::string name = ".ferry-partial." + text + token;
    const auto parsed = parse_aside(name);
    if (!parsed) continue;
    ++understood;
    ASSERT_EQ(aside_name(parsed->kind, parsed->target_name, parsed->token), name);
    ASSERT_EQ(split_path(join("run", parsed->target_name)).parent, "run") << name;
    ASSERT_NE(parsed->target_name, "..") << name;
  }
  EXPECT_GT(understood, 1000u);
}

}  // namespace
}  // namespace ferry
