// The asynchronous saver of a program that gets a signal.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "ckpt/base/error.h"
#include "ckpt/memory/async_saver.h"
#include "tests/faults/crash.h"
#include "tests/memory/random_model.h"

namespace ferry::test {
namespace {

// A real process and a real signal: the handler is the program's, the saver's threads take none.
AsyncSaver* signalled = nullptr;
StopMode signal_mode = StopMode::after_writes;
void on_term(int) { signalled->stop(signal_mode); }

class AsyncSignal : public testing::TestWithParam<StopMode> {
 protected:
  // Saves until it is stopped; 0 when it ended as it should.
  int child(int ready) const {
    const RandomModel model = random_model(1);
    AsyncSaver saver(posix_file_system(), run_, lone_group());
    signalled = &saver;
    signal_mode = GetParam();
    ::signal(SIGTERM, on_term);
    int64_t iteration = 0;
    try {
      while (!saver.is_stopped()) {
        saver.save(snapshot_of(model, ++iteration)).wait();
        if (iteration == 3 && ::write(ready, "x", 1) != 1) return 1;
      }
      saver.finish();
    } catch (const Error& error) {
      return error.kind() == ErrorKind::cancelled ? 0 : 2;
    }
    return 0;
  }

  const CrashFolder folder_;
  const std::string run_ = folder_.path("run");
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
  expect_good_run(run_);
  expect_clean(run_);
  expect_holds(posix_file_system(), run_, random_model(1));
  ::close(ends[0]);
  ::close(ends[1]);
}

INSTANTIATE_TEST_SUITE_P(Modes, AsyncSignal,
                         testing::Values(StopMode::after_writes, StopMode::at_once));

}  // namespace
}  // namespace ferry::test
