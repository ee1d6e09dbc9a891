// A program of somebody else's that answers lines with lines: started by a shell, asked over its
// standard input, heard on its standard output.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::tool {

struct LineProgramOptions {
  std::vector<std::string> environment;  // "NAME=value", besides ferry's own
  double seconds_a_line = 60;            // that it may take for one
  uint64_t longest_line = 64 << 20;      // bytes
  const std::atomic<bool>* stop = nullptr;
};

/// Used by one thread. What it writes to standard error goes to ferry's.
class LineProgram {
 public:
  /// Starts `sh -c COMMAND` in a process group of its own. `who` is it in messages. io when it
  /// cannot be started.
  LineProgram(const std::string& command, std::string who, LineProgramOptions options);
  /// Ends the group: its input is closed, and what still runs a moment later is killed.
  ~LineProgram();
  LineProgram(const LineProgram&) = delete;
  LineProgram& operator=(const LineProgram&) = delete;

  /// Sends a line (without its newline), which must be shorter than a page.
  void send(std::string_view line, std::string_view what);
  /// The next line that it writes, without newline. io, saying `what` was waited for, when it ends
  /// or takes too long; exhausted for a line that is too long; cancelled.
  std::string receive(std::string_view what);
  /// Whether it has written more than the lines that were received.
  bool has_more() const;

 private:
  void start(const std::string& command);
  bool wait_for_output(double seconds) const;
  [[noreturn]] void fail_ended(std::string_view what);

  std::string who_;
  LineProgramOptions options_;
  pid_t process_ = -1;
  int to_ = -1, from_ = -1;  // descriptors
  std::string read_;         // and not given yet
};

}  // namespace ferry::tool
