#include "tools/terminal/output.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/terminal/flags.h"

namespace ferry::tool {
namespace {

void send_nowhere(int descriptor) noexcept {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  ::dup2(nowhere, descriptor);
  ::close(nowhere);
}

}  // namespace

void hold_standard_streams() noexcept {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // For reading: writing must go on failing. Takes the lowest free number, which is this one.
    if (::open("/dev/null", O_RDONLY) < 0) return;
  }
}

void silence_standard_output() noexcept { send_nowhere(1); }

int silence_standard_error() noexcept {
  const int silenced = ::fcntl(2, F_DUPFD_CLOEXEC, 3);
  send_nowhere(2);
  return silenced;
}

void restore_standard_error(int silenced) noexcept {
  if (silenced >= 0) ::dup2(silenced, 2);
}

void print_past_silence(int silenced, std::string_view text) noexcept {
  const int descriptor = silenced >= 0 ? silenced : 2;
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    fail(ErrorKind::io, "standard output: {}", std::strerror(errno));
  }
}

void print_done(std::string_view text, std::string_view done) {
  try {
    print(text);
  } catch (const Error& error) {
    fail(error.kind(), "{}; but the report could not be printed: {}", done, error.what());
  }
}

void print_aside(std::string_view text) noexcept {
  std::string spelled;
  try {
    text = spelled = in_flags(text);
  } catch (const std::bad_alloc&) {
    // As it is, then.
  }
  // Errors are ignored: there is nowhere left to report them.
  if (std::fwrite(text.data(), 1, text.size(), stderr) == text.size()) std::fflush(stderr);
}

std::string json_text(nlohmann::json report) {
  put_in_flags(report);
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace ferry::tool
