// Another process that has a file open.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

namespace ferry::test {

class OpenElsewhere {
 public:
  explicit OpenElsewhere(const std::string& file) {
    std::array<int, 2> ready{};
    if (::pipe(ready.data()) != 0) return;
    child_ = ::fork();
    if (child_ == 0) {
      const std::string script =
          "exec 9<'" + file + "'; echo >&" + std::to_string(ready[1]) + "; exec sleep 60";
      ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
      ::_exit(1);
    }
    ::close(ready[1]);
    char byte = 0;
    opened_ = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
  }
  ~OpenElsewhere() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  OpenElsewhere(const OpenElsewhere&) = delete;
  OpenElsewhere& operator=(const OpenElsewhere&) = delete;

  bool opened() const { return opened_; }
  std::string number() const { return std::to_string(child_); }

 private:
  pid_t child_ = -1;
  bool opened_ = false;
};

}  // namespace ferry::test
