// Reports errors: to people on stderr and, with --json, also to scripts on stdout.
#pragma once

#include <string>

#include "ckpt/base/error.h"

namespace ferry::tool {

class Reporter {
 public:
  explicit Reporter(bool json) : json_(json) {}

  /// Returns the exit code for `kind`. `what_to_do` is printed as a hint unless it is empty.
  int report(ErrorKind kind, const std::string& message, const std::string& what_to_do) const;
  /// Uses the kind's default hint.
  int report(ErrorKind kind, const std::string& message) const;
  /// Reports the exception being handled, even when memory is exhausted. Call it in a handler.
  int report_current_exception() const noexcept;

 private:
  int report_any_exception() const;

  bool json_;
};

/// Installs a terminate handler that exits with the code of `exhausted` when a destructor, which
/// cannot throw, runs out of memory (nlohmann::json's allocates).
void install_terminate_handler() noexcept;

/// Where the terminate handler prints its message; standard error by default.
void set_last_words(int descriptor) noexcept;

}  // namespace ferry::tool
