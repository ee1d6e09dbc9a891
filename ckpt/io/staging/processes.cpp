#include "ckpt/io/staging/processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

namespace ferry {
namespace {

// Files of /proc have no size: read until they end, at most 4 KiB.
std::string read_proc(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             &std::fclose);
  if (!file) return {};
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string host_name() {
  std::array<char, 256> buffer{};
  ::gethostname(buffer.data(), buffer.size() - 1);
  return buffer.data();
}

std::string own_pid_namespace() {
  std::array<char, 64> buffer{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", buffer.data(), buffer.size());
  return length > 0 ? std::string(buffer.data(), static_cast<size_t>(length)) : std::string();
}

// Field 22 of /proc/N/stat; nothing when there is no such process. The second field, the program's
// name in parentheses, may hold anything.
std::optional<int64_t> start_of(const std::string& process) {
  const std::string text = read_proc("/proc/" + process + "/stat");
  size_t at = text.rfind(')');
  if (at == std::string::npos) return std::nullopt;
  for (int field = 2; field < 22; ++field) {
    at = text.find(' ', at + 1);
    if (at == std::string::npos) return std::nullopt;
  }
  // State Z: dead, and its parent has not waited for it yet.
  const size_t state = text.rfind(')') + 2;
  if (state < text.size() && (text[state] == 'Z' || text[state] == 'X')) return std::nullopt;
  int64_t ticks = 0;
  const auto [end, error] = std::from_chars(text.data() + at + 1, text.data() + text.size(), ticks);
  return error == std::errc() ? std::optional(ticks) : std::nullopt;
}

}  // namespace

ProcessIdentity ProcessIdentity::current() {
  return {host_name(), read_proc("/proc/sys/kernel/random/boot_id"), own_pid_namespace(),
          ::getpid(), start_of("self").value_or(0)};
}

Life life_of(const ProcessIdentity& process) {
  const ProcessIdentity own = ProcessIdentity::current();
  if (own.boot.empty() || process.boot.empty()) return Life::unknown;
  if (process.boot != own.boot) return process.host == own.host ? Life::dead : Life::unknown;
  if (process.pid_namespace != own.pid_namespace || own.pid_namespace.empty()) {
    return Life::unknown;
  }
  const auto start = start_of(std::to_string(process.process));
  return start && *start == process.started ? Life::alive : Life::dead;
}

namespace {

namespace fs = std::filesystem;

// Paths inside a folder; what vanishes or may not be seen is left out.
std::vector<fs::path> list(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    paths.push_back(it->path());
  }
  return paths;
}

// What a process has open or mapped below `prefix`; without the prefix.
std::vector<std::string> files_of(const fs::path& process, const std::string& prefix) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& path) {
    if (path.starts_with(prefix)) found.push_back(path.substr(prefix.size()));
  };
  for (const fs::path& link : list(process / "fd")) {
    std::error_code error;
    add(fs::read_symlink(link, error).string());
  }
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');  // the line's last field
    if (path != std::string::npos) add(line.substr(path));
  }
  return found;
}

std::string name_of(const fs::path& process) {
  std::string name;
  std::getline(std::ifstream(process / "comm"), name);
  return fmt::format("{} (process {})", name, process.filename().string());
}

}  // namespace

std::vector<OpenFile> files_open_below(const std::string& folder) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (error) return {};
  const std::string prefix = (real / "").string();
  std::vector<OpenFile> open;
  for (const fs::path& process : list("/proc")) {
    const std::string number = process.filename().string();
    const bool is_process = number.find_first_not_of("0123456789") == std::string::npos;
    if (!is_process || number == std::to_string(::getpid())) continue;
    for (std::string& path : files_of(process, prefix)) {
      open.push_back({std::move(path), name_of(process)});
    }
  }
  return open;
}

}  // namespace ferry
