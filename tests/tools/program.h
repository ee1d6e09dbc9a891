// The program as a user or a script meets it, in a folder of its own.
#pragma once

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace ferry::test {

struct Outcome {
  int code = -1;
  std::string out, err;
};

struct Program : testing::Test {
  std::filesystem::path folder;

  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "ferry-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string path(const std::string& name) const { return (folder / name).string(); }

  // Arguments as a shell takes them.
  Outcome ferry(const std::string& arguments) const {
    const std::string err = path("stderr");
    const std::string command = std::string(FERRY_PROGRAM) + " " + arguments + " 2>" + err;
    std::FILE* pipe = ::popen(command.c_str(), "r");
    Outcome outcome;
    std::array<char, 4096> buffer;
    while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
      outcome.out.append(buffer.data(), count);
    }
    const int status = ::pclose(pipe);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.err = read(err);
    std::filesystem::remove(err);
    // The libraries' names of options are spelled as flags wherever the program shows messages.
    EXPECT_EQ(option_in(outcome.out), "") << "ferry " << arguments;
    EXPECT_EQ(option_in(outcome.err), "") << "ferry " << arguments;
    return outcome;
  }

  // An option as the libraries name it (ckpt/base/error.h), with what surrounds it; empty:
  // none.
  static std::string option_in(const std::string& text) {
    const std::string prefix = "options.";
    for (size_t at = 0; (at = text.find(prefix, at)) != std::string::npos; at += prefix.size()) {
      const bool inside = at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) ||
                                     std::strchr("_./-", text[at - 1]) != nullptr);
      if (!inside) return text.substr(at < 80 ? 0 : at - 80, 200);
    }
    return {};
  }

  // Begins the program, which goes on by itself; its output is left out. Returns its process.
  static pid_t begin_ferry(const std::string& arguments) {
    const std::string command =
        std::string("exec ") + FERRY_PROGRAM + " " + arguments + " >/dev/null 2>&1";
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    std::_Exit(127);
  }
  // The status, as waitpid() has it, of a process that has ended, which a slow disk may delay:
  // until then its files are in use.
  static int end_of(pid_t child) {
    int status = -1;
    ::waitpid(child, &status, 0);
    return status;
  }

  static std::string read(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  static void write(const std::string& file, const std::string& content) {
    std::ofstream(file, std::ios::binary) << content;
  }

  // Names in the test's folder: partial output would be seen here.
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
};

}  // namespace ferry::test
