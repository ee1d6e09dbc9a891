// Launches as a user meets them: the program writes, a real shell runs.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/program.h"

namespace ferry::test {

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

struct Launching : Program {
  /// Runs a command of the shell in the test's folder. Its standard error is with its output.
  Outcome shell(const std::string& command) const {
    write(path("command.sh"), command);
    const std::string line = "cd '" + folder.string() + "' && bash command.sh </dev/null 2>&1";
    std::FILE* pipe = ::popen(line.c_str(), "r");
    Outcome outcome;
    std::array<char, 4096> buffer;
    while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
      outcome.out.append(buffer.data(), count);
    }
    const int status = ::pclose(pipe);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
  }

  /// A program in the test's folder "bin", which stands first in PATH of shell().
  void stub(const std::string& name, const std::string& body) const {
    std::filesystem::create_directories(path("bin"));
    write(path("bin/" + name),
          "#!/bin/bash\nif [ \"${1:-}\" = --version ]; then exit 0; fi\n" + body);
    std::filesystem::permissions(path("bin/" + name), std::filesystem::perms::owner_all);
  }

  /// A training program that trains nothing: it notes the words it was given, saves what
  /// TRAINS_TO says as the iteration, and ends with EXIT_CODE.
  void stub_training() const {
    stub("trainer",
         "shift\nprintf '%s\\0' \"$@\" >>\"$WORK/words\"\nprintf 'run\\n' >>\"$WORK/runs\"\n"
         "if [ -n \"${TRAINS_TO:-}\" ]; then mkdir -p \"$SAVES\"\n"
         "printf %s \"$TRAINS_TO\" >\"$SAVES/latest_checkpointed_iteration.txt\"; fi\n"
         "exit ${EXIT_CODE:-0}\n");
  }

  std::string in_shell(const std::string& command, const std::string& variables = "") const {
    return "export WORK='" + folder.string() + "' PATH='" + path("bin") + "':$PATH SAVES='" +
           path("run/checkpoints") + "' " + variables + "\n" + command;
  }

  size_t runs() const { return lines_of(read(path("runs"))).size(); }

  // A small model on one rank, which the stub trains.
  std::string small(const std::string& more = "") const {
    return "--preset one-machine --set folder=" + path("run") +
           " --set program.ferry=" + path("bin/trainer") + " " + more;
  }
};

}  // namespace ferry::test
