#include "tests/faults/crash.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/io/staging/lock_record.h"
#include "ckpt/store/run_folder.h"
#include "tests/random_cases.h"

namespace ferry::test {
namespace {

constexpr int kFailed = 40, kStrange = 41;
constexpr uint64_t kEndless = 100'000;

// The child's end: operations in the first line, then the error's kind and message.
[[noreturn]] void run_and_exit(const std::function<void()>& operation, const FaultPlan& plan,
                               int report) {
  int code = 0;
  std::string kind, message;
  arm(plan);
  try {
    operation();
  } catch (const Error& error) {
    code = kFailed;
    kind = name(error.kind());
    message = error.what();
  } catch (const std::exception& error) {
    code = kStrange;
    message = error.what();
  }
  const uint64_t done = operations();
  arm({});
  const std::string text = fmt::format("{}\n{}\n{}", done, kind, message);
  if (::write(report, text.data(), text.size()) < 0) code = kStrange;
  ::_exit(code);
}

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = ::read(descriptor, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  return text;
}

void run_again(const CrashCase& test) {
  const Ending again = run_in_child(test.operation, test.quirks);
  EXPECT_FALSE(again.failed) << "the next run: " << again.message;
  test.check_done();
}

// A process that waits until `gate` closes and then runs its operation.
struct Child {
  pid_t pid = -1;
  int report = -1;
};

Child start(const std::function<void()>& operation, const FaultPlan& plan,
            const std::array<int, 2>& gate) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  Child child;
  child.pid = ::fork();
  if (child.pid == 0) {
    char byte = 0;
    ::close(gate[1]);
    static_cast<void>(!::read(gate[0], &byte, 1));
    run_and_exit(operation, plan, ends[1]);
  }
  ::close(ends[1]);
  child.report = ends[0];
  return child;
}

Ending end_of(const Child& child) {
  const std::string text = read_all(child.report);
  ::close(child.report);
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  Ending ending;
  ending.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (ending.killed) return ending;
  const size_t first = text.find('\n'), second = text.find('\n', first + 1);
  if (!WIFEXITED(status) || second == std::string::npos || WEXITSTATUS(status) == kStrange) {
    ADD_FAILURE() << "the child ended with status " << status << ": " << text;
    return ending;
  }
  ending.operations = std::stoull(text.substr(0, first));
  ending.kind = text.substr(first + 1, second - first - 1);
  ending.message = text.substr(second + 1);
  ending.failed = WEXITSTATUS(status) == kFailed;
  return ending;
}

}  // namespace

std::vector<Ending> run_together(const std::vector<std::function<void()>>& operations,
                                 const FaultPlan& plan) {
  std::array<int, 2> gate{};
  if (::pipe(gate.data()) != 0) throw std::runtime_error("no pipe");
  std::vector<Child> children;
  for (const auto& operation : operations) children.push_back(start(operation, plan, gate));
  ::close(gate[0]);
  ::close(gate[1]);
  std::vector<Ending> endings;
  for (const Child& child : children) endings.push_back(end_of(child));
  return endings;
}

Ending run_in_child(const std::function<void()>& operation, const FaultPlan& plan) {
  return run_together({operation}, plan)[0];
}

namespace {

const char* text_of(Fault fault) {
  switch (fault) {
    case Fault::kill:
      return "killed";
    case Fault::error:
      return "failing";
    case Fault::shrink:
      return "its file cut short";
    default:
      return "disturbed";
  }
}

// With `at` = 1, 2, ... until a run gets through untouched. Disturbances begin with 0, all
// operations at once, which finds whatever does not go on; every third alone is enough after that.
// A larger stride from the environment counts its strikes for those between.
uint64_t strike_every_operation(const CrashCase& test, FaultPlan plan) {
  const bool disturbs = plan.fault == Fault::short_count || plan.fault == Fault::interrupt;
  const uint64_t stride =
      std::max<uint64_t>(number_from_environment("FERRY_TEST_STRIDE", 1), disturbs ? 3 : 1);
  uint64_t struck = 0;
  for (plan.at = disturbs ? 0 : 1; plan.at < kEndless; plan.at += plan.at ? stride : 1) {
    SCOPED_TRACE(testing::Message() << text_of(plan.fault) << " at operation " << plan.at);
    test.prepare();
    const Ending ending = run_in_child(test.operation, plan);
    const bool hit = ending.killed || ending.operations >= plan.at;
    EXPECT_EQ(ending.killed, hit && plan.fault == Fault::kill);
    if (ending.failed) {
      EXPECT_FALSE(disturbs || !hit) << ending.message;
      EXPECT_THAT(ending.message, testing::HasSubstr(test.named));
      if (plan.fault == Fault::error) {
        EXPECT_THAT(ending.message, testing::HasSubstr(std::strerror(plan.error_number)));
      }
    }
    const bool survived_error = plan.fault == Fault::error && hit;  // it may have left something
    if (ending.killed || ending.failed || survived_error) {
      test.check();
      if (plan.fault != Fault::shrink) run_again(test);  // what was cut short stays so
    } else {
      test.check_done();
    }
    if (testing::Test::HasFailure()) return 0;
    if (!hit) return struck * stride;
    struck += ending.killed || ending.failed || disturbs ? 1 : 0;
  }
  ADD_FAILURE() << "no end after " << kEndless << " operations";
  return 0;
}

}  // namespace

uint64_t kill_at_every_operation(const CrashCase& test) {
  FaultPlan plan = test.quirks;
  plan.fault = Fault::kill;
  return strike_every_operation(test, plan);
}

uint64_t fail_at_every_operation(const CrashCase& test, int error_number, bool stays) {
  FaultPlan plan = test.quirks;
  plan.fault = Fault::error;
  plan.error_number = error_number;
  plan.stays = stays;
  return strike_every_operation(test, plan);
}

uint64_t disturb_every_operation(const CrashCase& test, Fault fault) {
  FaultPlan plan = test.quirks;
  plan.fault = fault;
  plan.reads = true;
  return strike_every_operation(test, plan);
}

uint64_t shrink_at_every_read(const CrashCase& test, const char* part) {
  FaultPlan plan = test.quirks;
  plan.fault = Fault::shrink;
  plan.shrinks = part;
  plan.reads = true;
  return strike_every_operation(test, plan);
}

CrashFolder::CrashFolder() {
  const std::string parent = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : testing::TempDir();
  path_ = parent + "/ferry-crash-XXXXXX";
  if (!::mkdtemp(path_.data())) throw std::runtime_error("no folder in " + parent);
}

CrashFolder::~CrashFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void CrashFolder::clear() const {
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}

void expect_good_run(const std::string& run) {
  const auto files = posix_file_system();
  const RunFolder folder = read_run_folder(*files, run);
  EXPECT_NE(folder.tracker.state, Tracker::State::missing) << run;
  EXPECT_EQ(problem_of_tracker(folder), "") << run;
  try {
    open_checkpoint(files, run);
  } catch (const Error& error) {
    ADD_FAILURE() << run << " does not open: " << error.what();
  }
}

void expect_clean(const std::string& folder) {
  for (const std::string& name : posix_file_system()->list(folder)) {
    EXPECT_FALSE(parse_aside(name)) << name << " is left in " << folder;
  }
}

}  // namespace ferry::test
