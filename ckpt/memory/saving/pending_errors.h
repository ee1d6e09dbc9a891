// Errors of saves that run while their caller goes on.
#pragma once

#include <exception>
#include <mutex>
#include <new>
#include <vector>

#include "ckpt/base/error.h"

namespace ferry {

/// Preallocated out-of-memory error. Copies of it need no memory.
const Error& out_of_memory() noexcept;

/// What `make` returns, unless it has no memory for that.
template <typename Make>
Error error_or_out_of_memory(const Make& make) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

Error error_of(const std::exception& exception) noexcept;

/// What went wrong and was not thrown yet, by a saver or by tickets that may outlive it. Safe from
/// several threads.
class PendingErrors {
 public:
  void add(const Error& error) noexcept;

  /// Throws the first, and says how many more there are; then there are none.
  void rethrow();

 private:
  std::mutex mutex_;
  std::vector<Error> errors_;
  size_t without_words_ = 0;  // those that there was no memory for
};

}  // namespace ferry
