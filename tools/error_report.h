// Errors as the program tells them: people read them on stderr and, where JSON is asked for,
// scripts on stdout.
#pragma once

#include <string>

#include "ckpt/base/error.h"

namespace ferry::tool {

class Reporter {
 public:
  explicit Reporter(bool json) : json_(json) {}

  /// Returns the exit code of such an error. `what_to_do` may be empty.
  int report(ErrorKind kind, const std::string& message, const std::string& what_to_do) const;
  /// With the kind's own hint.
  int report(ErrorKind kind, const std::string& message) const;
  /// In a handler: of the exception that is being handled, also where there is no memory to tell
  /// it.
  int report_current_exception() const noexcept;

 private:
  int report_any_exception() const;

  bool json_;
};

/// Lets the program end with the exit code of `exhausted` where a destructor finds no memory
/// (nlohmann::json's wants some): it can throw nothing.
void tell_of_what_terminates() noexcept;

/// Where that is told: standard error until then.
void set_last_words(int descriptor) noexcept;

}  // namespace ferry::tool
