#include "tools/error_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tools/terminal/exit_code.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

void print_error(ErrorKind kind, const std::string& message, const std::string& what_to_do) {
  nlohmann::json error = {
      {"kind", name(kind)}, {"message", message}, {"exit_code", exit_code(kind)}};
  if (!what_to_do.empty()) error["hint"] = what_to_do;
  try {
    print(json_text({{"error", std::move(error)}}));
  } catch (const Error&) {
    // It is on stderr already.
  }
}

// A terminate handler can reach nothing but what is global.
std::atomic<int> last_words{STDERR_FILENO};

[[noreturn]] void on_terminate() noexcept {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    constexpr std::string_view kText = "ferry: error: out of memory\n";
    if (::write(last_words, kText.data(), kText.size()) < 0) std::abort();
    std::_Exit(exit_code(ErrorKind::exhausted));
  } catch (...) {
    // A bug: abort, so that a debugger or core file shows it.
  }
  std::abort();
}

}  // namespace

int Reporter::report(ErrorKind kind, const std::string& message,
                     const std::string& what_to_do) const {
  print_aside(fmt::format("ferry: error: {}\n", printable(message, true)));
  if (!what_to_do.empty()) print_aside(fmt::format("ferry: hint: {}\n", what_to_do));
  if (json_) print_error(kind, message, what_to_do);
  return exit_code(kind);
}

int Reporter::report(ErrorKind kind, const std::string& message) const {
  return report(kind, message, hint(kind));
}

int Reporter::report_any_exception() const {
  try {
    throw;
  } catch (const Error& error) {
    return report(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return report(ErrorKind::exhausted, "out of memory");
  } catch (const std::exception& error) {
    return report(ErrorKind::internal, error.what());
  } catch (...) {
    return report(ErrorKind::internal, "an exception that is not a std::exception");
  }
}

int Reporter::report_current_exception() const noexcept {
  try {
    return report_any_exception();
  } catch (...) {  // no memory for its message
    print_aside("ferry: error: out of memory\n");
    return exit_code(ErrorKind::exhausted);
  }
}

void install_terminate_handler() noexcept { std::set_terminate(on_terminate); }

void set_last_words(int descriptor) noexcept { last_words = descriptor; }

}  // namespace ferry::tool
