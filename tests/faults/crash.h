// Kills a real process at every operation on files of something that it does, or lets every
// operation fail, and checks the outcome each time.
//
//   CrashCase save;
//   save.prepare = [&] { ... };            // puts the files as they are at first, from scratch
//   save.operation = [&] { ... };          // what is struck; runs in a forked process, may throw
//   save.check = [&] { ... };              // after each strike: nothing may be lost. EXPECT_*
//   save.check_done = [&] { ... };         // after `operation` ran again, to its end
//   save.named = run;                       // what the message of every error names
//   EXPECT_GT(kill_at_every_operation(save), 20u);
//
// For n = 1, 2, ... : prepare, `operation` in a child that is struck at its n-th operation
// (syscalls.h says what one is), check, `operation` again in a child that is not, check_done; until
// a child gets through untouched. `operation` must do the same each time (one thread, or an order
// that does not matter). The program must be linked with ferry_test_faults. The forked child never
// returns into the test: it ends by _exit(). FERRY_TEST_STRIDE=7 in the environment strikes every
// seventh operation alone, and begins with the first: for builds that run many times slower.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/faults/syscalls.h"

namespace ferry::test {

struct CrashCase {
  std::function<void()> prepare;
  std::function<void()> operation;
  std::function<void()> check = [] {};
  std::function<void()> check_done = [] {};
  std::string named;  // what the message of every error holds: a path
  FaultPlan quirks;   // no_exchange, no_locks: of the file system in all runs
};

/// How a child ended.
struct Ending {
  bool killed = false;
  bool failed = false;  // by an Error
  std::string message;  // of the Error
  std::string kind;     // its kind, by name
  uint64_t operations = 0;
};

/// Runs `operation` in a forked process under a plan; an ending that is none of these (another
/// signal, an exception that is not an Error) is a test failure.
Ending run_in_child(const std::function<void()>& operation, const FaultPlan& plan);

/// Runs all at once, each in a forked process of its own.
std::vector<Ending> run_together(const std::vector<std::function<void()>>& operations,
                                 const FaultPlan& plan);

/// All of these return how many runs were struck: killed, failed by an Error, or disturbed.
uint64_t kill_at_every_operation(const CrashCase& test);

/// Each operation fails once with `error_number`; with `stays` all later ones too. The child must
/// end well or by an Error.
uint64_t fail_at_every_operation(const CrashCase& test, int error_number, bool stays);

/// Short counts, and EINTR, at every operation at once and then at each alone: all must end well.
uint64_t disturb_every_operation(const CrashCase& test, Fault fault);

/// At every read of a file with `part` in its path that file is cut short under it. The child must
/// end by an Error, or well: then check_done() must find everything as it should be.
uint64_t shrink_at_every_read(const CrashCase& test, const char* part);

/// A new folder of its own for a test, gone when this is; in memory where that can be had:
/// thousands of kills sync tens of thousands of files.
class CrashFolder {
 public:
  CrashFolder();
  ~CrashFolder();
  CrashFolder(const CrashFolder&) = delete;
  CrashFolder& operator=(const CrashFolder&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  void clear() const;

 private:
  std::string path_;
};

/// Expects that open_checkpoint() opens a run folder and its tracker names a complete iteration.
void expect_good_run(const std::string& run);

/// No name of ferry's own stands in the folder.
void expect_clean(const std::string& folder);

}  // namespace ferry::test
