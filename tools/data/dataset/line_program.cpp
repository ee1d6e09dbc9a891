#include "tools/data/dataset/line_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "ckpt/base/error.h"
#include "tools/terminal/text.h"

extern char** environ;

namespace ferry::tool {
namespace {

using ProgramClock = std::chrono::steady_clock;
constexpr auto kStep = std::chrono::milliseconds(50);  // between checks of the stop flag
constexpr auto kGrace = std::chrono::milliseconds(500);

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) == 127) return "could not be started (exit code 127)";
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

// Waits a moment for a process to end, which it stays to be collected.
bool has_ended_soon(pid_t process) {
  const auto until = ProgramClock::now() + kGrace;
  do {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == process) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } while (ProgramClock::now() < until);
  return false;
}

// Ends a process and what it started, and returns its status. As it was not collected before, the
// number of its group is nobody else's.
int end_group(pid_t process) {
  ::kill(-process, SIGKILL);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

LineProgram::LineProgram(const std::string& command, std::string who, LineProgramOptions options)
    : who_(std::move(who)), options_(std::move(options)) {
  start(command);
}

// Its input is a socket: writing to one whose program has ended is an error instead of a signal.
void LineProgram::start(const std::string& command) {
  int in[2] = {-1, -1}, out[2] = {-1, -1};
  const bool made =
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) == 0 && ::pipe2(out, O_CLOEXEC) == 0;
  to_ = in[0];
  from_ = out[0];
  int failed = made ? 0 : errno;
  if (made) {
    std::vector<char*> environment;
    for (char** one = environ; *one; ++one) environment.push_back(*one);
    for (std::string& one : options_.environment) {
      const std::string_view name = std::string_view(one).substr(0, one.find('=') + 1);
      std::erase_if(environment, [&](const char* has) {
        return has && std::string_view(has).starts_with(name);
      });
      environment.push_back(one.data());
    }
    environment.push_back(nullptr);
    std::string shell = "sh", option = "-c", text = command;
    char* words[] = {shell.data(), option.data(), text.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    failed = ::posix_spawn(&process_, "/bin/sh", &actions, &attributes, words, environment.data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  for (const int descriptor : {in[1], out[1]}) {
    if (descriptor >= 0) ::close(descriptor);
  }
  if (failed == 0) return;
  process_ = -1;
  for (const int descriptor : {to_, from_}) {
    if (descriptor >= 0) ::close(descriptor);
  }
  fail(ErrorKind::io, "{} cannot be started: {}", who_, std::strerror(failed));
}

LineProgram::~LineProgram() {
  if (process_ < 0) return;
  ::close(to_);
  ::close(from_);
  has_ended_soon(process_);
  end_group(process_);
}

void LineProgram::send(std::string_view line, std::string_view what) {
  const std::string text = std::string(line) + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t bytes =
        ::send(to_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes > 0) {
      sent += static_cast<size_t>(bytes);
    } else if (errno != EINTR) {
      fail_ended(what);
    }
  }
}

// False: nothing came.
bool LineProgram::wait_for_output(double seconds) const {
  pollfd waited{from_, POLLIN, 0};
  return ::poll(&waited, 1, static_cast<int>(seconds * 1000)) > 0;
}

bool LineProgram::has_more() const {
  if (!read_.empty()) return true;
  pollfd waited{from_, POLLIN, 0};
  return ::poll(&waited, 1, 0) > 0 && (waited.revents & POLLIN) != 0;
}

std::string LineProgram::receive(std::string_view what) {
  const auto begin = ProgramClock::now();
  size_t searched = 0;
  while (true) {
    const size_t newline = read_.find('\n', searched);
    if (newline != std::string::npos) {
      std::string line = read_.substr(0, newline);
      read_.erase(0, newline + 1);
      return line;
    }
    searched = read_.size();
    if (read_.size() > options_.longest_line) {
      fail(ErrorKind::exhausted,
           "{} answered {} with a line of more than {}; answer with a digest of the item instead",
           who_, what, human_bytes(options_.longest_line));
    }
    if (options_.stop && *options_.stop) fail(ErrorKind::cancelled, "stopped by a signal");
    if (std::chrono::duration<double>(ProgramClock::now() - begin).count() >
        options_.seconds_a_line) {
      fail(ErrorKind::io, "{} did not answer {} within {}; --timeout allows it more", who_, what,
           human_seconds(options_.seconds_a_line));
    }
    if (!wait_for_output(std::chrono::duration<double>(kStep).count())) continue;
    const size_t before = read_.size();
    read_.resize(before + (64 << 10));
    const ssize_t bytes = ::read(from_, read_.data() + before, read_.size() - before);
    read_.resize(before + static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
    if (bytes == 0 || (bytes < 0 && errno != EINTR)) fail_ended(what);
  }
}

void LineProgram::fail_ended(std::string_view what) {
  if (!has_ended_soon(process_)) {
    fail(ErrorKind::io, "{} closed its standard input or output instead of answering {}", who_,
         what);
  }
  const int status = end_group(process_);
  ::close(to_);
  ::close(from_);
  process_ = -1;
  fail(ErrorKind::io, "{} {} instead of answering {}; its own output is above", who_,
       ending_of(status), what);
}

}  // namespace ferry::tool
